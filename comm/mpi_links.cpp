#include "comm/mpi_links.h"

#include <algorithm>
#include <thread>

#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr std::size_t kLongestReason = 2048;
constexpr double kTelling = 0.5;  // seconds, for a reason to reach the others

/// Between looks: none while an answer is a matter of microseconds, then ever longer ones, so that ranks that
/// wait leave the cores to those that compute.
class Pause {
 public:
  void take() {
    if (++looks_ < kBusyLooks) return std::this_thread::yield();
    std::this_thread::sleep_for(next_);
    if (looks_ % kLooksOfALength == 0) next_ = std::min(2 * next_, std::chrono::microseconds(1000));
  }

 private:
  static constexpr int kBusyLooks = 50;
  static constexpr int kLooksOfALength = 200;
  int looks_ = 0;
  std::chrono::microseconds next_{20};
};

}  // namespace

MpiLinks::MpiLinks(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int tag)
    : session_(std::move(session)),
      world_ranks_(std::move(world_ranks)),
      tag_(tag),
      reasons_(world_ranks_.size()) {
  const auto me = std::find(world_ranks_.begin(), world_ranks_.end(), session_->rank());
  rank_ = static_cast<int>(me - world_ranks_.begin());
}

MpiLinks::~MpiLinks() {
  const auto lock = session_->lock();
  drop_requests();
}

void MpiLinks::send(int to, std::span<const std::byte> bytes) {
  const auto lock = session_->lock();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, world_rank(to), tag_,
                      MPI_COMM_WORLD, &request),
            "MPI_Isend");
  requests_.push_back(request);
  begun_.push_back({to, false});
}

void MpiLinks::receive(int from, std::span<std::byte> bytes) {
  const auto lock = session_->lock();
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, world_rank(from), tag_,
                      MPI_COMM_WORLD, &request),
            "MPI_Irecv");
  requests_.push_back(request);
  begun_.push_back({from, true});
}

void MpiLinks::wait(const Deadline& deadline) {
  try {
    wait_for_requests(deadline);
  } catch (...) {
    const auto lock = session_->lock();
    drop_requests();
    throw;
  }
}

void MpiLinks::wait_for_requests(const Deadline& deadline) {
  Pause pause;
  while (true) {
    {
      const auto lock = session_->lock();
      int done = 0;
      check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
                "MPI_Testall");
      if (done != 0) {
        requests_.clear();
        begun_.clear();
        return;
      }
      look_for_reasons();
      if (deadline.passed()) break;
    }
    look();
    pause.take();
  }
  const auto lock = session_->lock();
  std::vector<int> missing;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) missing.push_back(begun_[i].other);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  fail<PeerError>("rank {} waited {} s for {}", rank_, deadline.seconds(), text_of_ranks(missing));
}

void MpiLinks::look_for_reasons() {
  if (!reason_.empty()) throw PeerError(reason_);
  while (true) {
    int came = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_ + 1, MPI_COMM_WORLD, &came, &status), "MPI_Iprobe");
    if (came == 0) break;
    char text[kLongestReason];
    int length = 0;
    check_mpi(MPI_Recv(text, kLongestReason, MPI_BYTE, status.MPI_SOURCE, tag_ + 1, MPI_COMM_WORLD, &status),
              "MPI_Recv");  // does not wait: it has come
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count");
    const auto from = std::find(world_ranks_.begin(), world_ranks_.end(), status.MPI_SOURCE);
    reasons_[static_cast<std::size_t>(from - world_ranks_.begin())].assign(text,
                                                                           static_cast<std::size_t>(length));
  }
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const std::string& reason = reasons_[static_cast<std::size_t>(begun_[i].other)];
    if (reason.empty()) continue;
    int done = 0;
    check_mpi(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) throw PeerError(reason);
  }
}

void MpiLinks::abort(const std::string& reason) noexcept {
  session_->mark_broken();
  std::vector<MPI_Request> telling;
  {
    const auto lock = session_->lock();
    if (!reason_.empty()) return;  // told before
    reason_ = reason.substr(0, kLongestReason);
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      MPI_Isend(reason_.data(), static_cast<int>(reason_.size()), MPI_BYTE, world_rank(other), tag_ + 1,
                MPI_COMM_WORLD, &telling.emplace_back(MPI_REQUEST_NULL));
    }
  }
  const Deadline deadline(kTelling);
  Pause pause;
  for (int done = 0; done == 0 && !deadline.passed(); pause.take()) {
    const auto lock = session_->lock();
    MPI_Testall(static_cast<int>(telling.size()), telling.data(), &done, MPI_STATUSES_IGNORE);
  }
}

void MpiLinks::drop_requests() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (begun_[i].receives) {
      MPI_Cancel(&requests_[i]);
      MPI_Wait(&requests_[i], MPI_STATUS_IGNORE);  // for a cancelled receive: at once
    } else {
      MPI_Request_free(&requests_[i]);
    }
  }
  requests_.clear();
  begun_.clear();
}

std::unique_ptr<MessageLinks> MpiLinks::make_group(std::span<const int> members, const std::string& name,
                                                   const Deadline&) {
  std::vector<int> world_ranks;
  for (const int member : members) world_ranks.push_back(world_rank(member));
  return std::make_unique<MpiLinks>(session_, std::move(world_ranks), std::stoi(name));
}

}  // namespace convoy
