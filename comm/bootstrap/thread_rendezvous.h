// Initialization of ranks that are threads of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"

namespace convoy::dist {

class ThreadRendezvousState;

/// A Rendezvous between threads of one process, through its memory.
class ThreadRendezvous final : public Rendezvous {
 public:
  ThreadRendezvous(std::shared_ptr<ThreadRendezvousState> state, std::vector<RankInfo> all, int rank,
                   double timeout_seconds);
  /// Makes current and later waits of the other ranks throw PeerError.
  ~ThreadRendezvous() override;

  const RankInfo& info() const override { return all_[static_cast<std::size_t>(rank_)]; }
  const std::vector<RankInfo>& all() const override { return all_; }
  std::vector<std::string> all_gather(const std::string& local) override;
  void barrier() override { all_gather(""); }
  std::string note() const override;

  /// Returns rank 0's `local` on every rank. Collective call. Has no timeout: blocks until all ranks have
  /// called it or one of them has exited, which throws PeerError.
  std::shared_ptr<void> share(std::shared_ptr<void> local);

 private:
  std::shared_ptr<ThreadRendezvousState> state_;
  std::vector<RankInfo> all_;
  int rank_;
  double timeout_;
};

/// Returns one rendezvous per rank, in rank order; RankInfo::source is "threads". Each must be used and
/// destroyed by its own thread. Throws UsageError if `ranks` is less than 1.
std::vector<std::unique_ptr<ThreadRendezvous>> rendezvous_in_threads(int ranks, double timeout_seconds);

}  // namespace convoy::dist
