// Initialization of ranks that are threads of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/bootstrap/thread_rounds.h"

namespace convoy::dist {

/// A Rendezvous between threads of one process, through its memory.
class ThreadRendezvous final : public Rendezvous {
 public:
  /// What a rank tells the others: a text, or an object of rank 0.
  struct Contribution {
    std::string text;
    std::shared_ptr<void> shared;
  };
  ThreadRendezvous(std::shared_ptr<ThreadRounds<Contribution>> rounds, std::vector<RankInfo> all, int rank,
                   double timeout_seconds);
  /// Makes current and later waits of the other ranks throw PeerError.
  ~ThreadRendezvous() override;

  std::vector<std::string> all_gather(const std::string& local) override;

  /// Returns rank 0's `local` on every rank. Collective call. Has no timeout: blocks until all ranks have
  /// called it or one of them has exited, which throws PeerError.
  std::shared_ptr<void> share(std::shared_ptr<void> local);

 private:
  std::shared_ptr<ThreadRounds<Contribution>> rounds_;
  double timeout_;
};

/// Returns one rendezvous per rank, in rank order; RankInfo::source is "threads". Each must be used and
/// destroyed by its own thread. Throws UsageError if `ranks` is less than 1.
std::vector<std::unique_ptr<ThreadRendezvous>> rendezvous_in_threads(int ranks, double timeout_seconds);

}  // namespace convoy::dist
