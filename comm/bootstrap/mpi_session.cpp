#include "convoy/comm/bootstrap/mpi_session.h"

#include "convoy/comm/core/library_versions.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail<PeerError>("{}: {}", call, text);
}

MpiSession::MpiSession() {
  int before = 0;
  check_mpi(MPI_Initialized(&before), "MPI_Initialized");
  check(before == 0, "MPI is already initialized; it can be initialized only once per process");
  int level = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  may_finalize_ = true;  // for errors before the number of ranks is known
  check(level >= MPI_THREAD_SERIALIZED,
        "{} does not support calls from several threads (found level {}, expected MPI_THREAD_SERIALIZED)",
        library(), level);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  void* bound = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
  last_tag_ = found != 0 ? *static_cast<int*>(bound) : 32767;
  may_finalize_ = size_ == 1;
}

MpiSession::~MpiSession() {
  if (may_finalize_) MPI_Finalize();
}

void MpiSession::abandon(const std::string& reason) {
  if (abandoned_) return;
  abandon_reason_ = reason;
  broken_ = abandoned_ = true;
}

void MpiSession::check_usable() const {
  if (abandoned_) throw PeerError(abandon_reason_);
}

std::string MpiSession::library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole = text;
  return whole.substr(0, whole.find(','));
}

std::string mpi_version_text() { return MpiSession::library(); }

int MpiSession::new_tags() {
  // Each rank has its own range of tags, so no communication is necessary.
  const int pairs_per_rank = last_tag_ / 2 / size_;
  const int local = pairs_++;
  if (local >= pairs_per_rank)
    fail<PeerError>("{}: rank {} has used all its message tags for {} groups of ranks", library(), rank_,
                    local);
  return 2 * (rank_ * pairs_per_rank + local);
}

}  // namespace convoy::dist
