#include "comm/mpi_session.h"

#include "comm/library_versions.h"
#include "kernels/runtime/check.h"

namespace convoy {

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
  check(before == 0, "ranks meet through MPI once a process");
  int level = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  may_finalize_ = true;  // until it is known that there are others
  check(level >= MPI_THREAD_SERIALIZED, "{} allows no calls from several threads (level {})", library(),
        level);
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

std::string MpiSession::library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole = text;
  return whole.substr(0, whole.find(','));
}

std::string mpi_version_text() { return MpiSession::library(); }

int MpiSession::new_tags() {
  // Each rank has a range of its own, so that nobody must be asked.
  const int pairs_a_rank = last_tag_ / 2 / size_;
  const int mine = pairs_++;
  if (mine >= pairs_a_rank)
    fail<PeerError>("{}: rank {} has made {} groups of ranks, more than its tags can tell apart", library(),
                    rank_, mine);
  return 2 * (rank_ * pairs_a_rank + mine);
}

}  // namespace convoy
