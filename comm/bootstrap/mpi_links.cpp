#include "convoy/comm/bootstrap/mpi_links.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/library_versions.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kMaxReasonBytes = 2048;
constexpr double kAbortSeconds = 0.5;   // time for the reason to reach the other ranks
constexpr double kCancelSeconds = 0.1;  // time for MPI to cancel or complete messages

/// Pauses between polls. The first polls only yield, since most messages complete within microseconds. Later
/// pauses grow to 1 ms, so waiting ranks leave the cores to computing ones.
class Backoff {
 public:
  void sleep() {
    if (++polls_ < kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(next_);
    if (polls_ % kPollsPerInterval == 0) next_ = std::min(2 * next_, std::chrono::microseconds(1000));
  }

 private:
  static constexpr int kYields = 50;
  static constexpr int kPollsPerInterval = 200;
  int polls_ = 0;
  std::chrono::microseconds next_{20};
};

}  // namespace

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

MpiLinks::MpiLinks(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int tag)
    : session_(std::move(session)),
      world_ranks_(std::move(world_ranks)),
      tag_(tag),
      reasons_(world_ranks_.size()),
      peers_(world_ranks_.size()),
      watch_(static_cast<int>(world_ranks_.size())) {
  const auto me = std::find(world_ranks_.begin(), world_ranks_.end(), session_->rank());
  rank_ = static_cast<int>(me - world_ranks_.begin());
}

MpiLinks::~MpiLinks() {
  cancel_requests();
  const auto lock = session_->lock();
  if (is_abandoned_) session_->abandon(reason_.empty() ? "a message between ranks was interrupted" : reason_);
}

void MpiLinks::send(int to, std::span<const std::byte> bytes) {
  const auto lock = session_->lock();
  session_->check_usable();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, world_rank(to), tag_,
                      MPI_COMM_WORLD, &request),
            "MPI_Isend");
  requests_.push_back(request);
  pending_.push_back({to, false});
  peers_[static_cast<std::size_t>(to)] = true;
}

void MpiLinks::receive(int from, std::span<std::byte> bytes) {
  const auto lock = session_->lock();
  session_->check_usable();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, world_rank(from), tag_,
                      MPI_COMM_WORLD, &request),
            "MPI_Irecv");
  requests_.push_back(request);
  pending_.push_back({from, true});
  peers_[static_cast<std::size_t>(from)] = true;
}

void MpiLinks::wait(const Deadline& deadline) {
  try {
    wait_for_requests(deadline);
  } catch (...) {
    cancel_requests();
    throw;
  }
}

void MpiLinks::wait_for_requests(const Deadline& deadline) {
  watch_.is_due(deadline, true);
  Backoff backoff;
  std::vector<int> indices(requests_.size());
  while (true) {
    {
      const auto lock = session_->lock();
      session_->check_usable();
      int completed = 0;
      check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &completed, indices.data(),
                             MPI_STATUSES_IGNORE),
                "MPI_Testsome");
      if (completed == MPI_UNDEFINED) {  // no request is left
        requests_.clear();
        pending_.clear();
        return;
      }
      if (completed > 0) {
        deadline.progressed();
        continue;
      }
      throw_if_aborted();
      if (deadline.passed()) watch_.check(deadline, rank_, pending_ranks());
      if (watch_.is_due(deadline)) tell_wait();
    }
    poll();
    backoff.sleep();
  }
}

std::vector<int> MpiLinks::pending_ranks() const {
  std::set<int> ranks;
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i] != MPI_REQUEST_NULL) ranks.insert(pending_[i].other);
  return {ranks.begin(), ranks.end()};
}

void MpiLinks::tell_wait() {
  if (told_.empty() || told_.back().round != round()) told_.push_back({.round = round()});
  for (int other = 0; other < size(); ++other) {
    if (!peers_[static_cast<std::size_t>(other)]) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(&told_.back(), sizeof told_.back(), MPI_BYTE, world_rank(other), tag_ + 1,
                        MPI_COMM_WORLD, &request),
              "MPI_Isend");
    check_mpi(MPI_Request_free(&request), "MPI_Request_free");
  }
}

bool MpiLinks::poll_peers() {
  const auto lock = session_->lock();
  session_->check_usable();
  receive_reasons();
  for (const std::string& reason : reasons_)
    if (!reason.empty()) throw PeerError(reason);
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
  return found != 0 || watch_.last_round() > round();
}

void MpiLinks::receive_reasons() {
  if (!reason_.empty()) throw PeerError(reason_);
  while (true) {
    int found = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_ + 1, MPI_COMM_WORLD, &found, &status), "MPI_Iprobe");
    if (found == 0) break;
    char text[kMaxReasonBytes];
    int length = 0;
    check_mpi(MPI_Recv(text, kMaxReasonBytes, MPI_BYTE, status.MPI_SOURCE, tag_ + 1, MPI_COMM_WORLD, &status),
              "MPI_Recv");  // does not block: the message has been received
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
    const auto from = std::find(world_ranks_.begin(), world_ranks_.end(), status.MPI_SOURCE);
    const auto rank = from - world_ranks_.begin();
    if (static_cast<std::size_t>(length) == sizeof(WaitMessage) && text[0] == '\0') {
      WaitMessage told;
      std::memcpy(&told, text, sizeof told);
      watch_.set_told(static_cast<int>(rank), told.round);
      continue;
    }
    reasons_[static_cast<std::size_t>(rank)].assign(text, static_cast<std::size_t>(length));
  }
}

void MpiLinks::throw_if_aborted() {
  receive_reasons();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const std::string& reason = reasons_[static_cast<std::size_t>(pending_[i].other)];
    if (reason.empty()) continue;
    int done = 0;
    check_mpi(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) throw ForwardedError(reason);
  }
}

void MpiLinks::abort(const std::string& reason) noexcept {
  session_->mark_broken();
  {
    const auto lock = session_->lock();
    if (!reason_.empty()) return;  // already aborted
    reason_ = reason.substr(0, kMaxReasonBytes);
  }
  send_reason();
  const auto lock = session_->lock();
  if (is_abandoned_) session_->abandon(reason_);
}

void MpiLinks::send_reason() noexcept {
  std::vector<MPI_Request> sends;
  {
    const auto lock = session_->lock();
    if (session_->is_abandoned()) return;
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      MPI_Isend(reason_.data(), static_cast<int>(reason_.size()), MPI_BYTE, world_rank(other), tag_ + 1,
                MPI_COMM_WORLD, &sends.emplace_back(MPI_REQUEST_NULL));
    }
  }
  const Deadline deadline(kAbortSeconds);
  Backoff backoff;
  for (int done = 0; done == 0 && !deadline.passed(); backoff.sleep()) {
    const auto lock = session_->lock();
    if (session_->is_abandoned()) return;
    MPI_Testall(static_cast<int>(sends.size()), sends.data(), &done, MPI_STATUSES_IGNORE);
  }
}

void MpiLinks::cancel_requests() noexcept {
  if (requests_.empty()) return;
  const Deadline deadline(kCancelSeconds);
  Backoff backoff;
  for (bool is_first = true, done = false; !done; is_first = false, backoff.sleep()) {
    const auto lock = session_->lock();
    if (session_->is_abandoned()) break;
    for (std::size_t i = 0; is_first && i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL && pending_[i].receives) MPI_Cancel(&requests_[i]);
    int all = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
    done = all != 0;
    if (!done && deadline.passed()) {
      is_abandoned_ = true;
      if (!reason_.empty()) session_->abandon(reason_);  // the other ranks know the reason
      break;
    }
  }
  requests_.clear();  // MPI still owns those that are not complete
  pending_.clear();
}

std::unique_ptr<MessageLinks> MpiLinks::make_group(std::span<const int> members, const std::string& name,
                                                   const Deadline&) {
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(world_rank(member));
  return std::make_unique<MpiLinks>(session_, std::move(world_ranks), std::stoi(name));
}

}  // namespace convoy::dist
