// Ranks that are threads of one process, and meet in its memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rendezvous.h"

namespace convoy {

class ThreadMeeting;

class ThreadRendezvous final : public Rendezvous {
 public:
  ThreadRendezvous(std::shared_ptr<ThreadMeeting> meeting, std::vector<RankInfo> all, int rank,
                   double timeout_seconds);
  /// Whoever waits for this rank learns that it has left.
  ~ThreadRendezvous() override;

  const RankInfo& info() const override { return all_[static_cast<std::size_t>(rank_)]; }
  const std::vector<RankInfo>& all() const override { return all_; }
  Store* store() override { return nullptr; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  void barrier() override { all_gather(""); }
  std::string note() const override;

  /// What rank 0 has, on every rank: memory that all of them use from then on. Every rank calls it; rank 0
  /// may take its time to come.
  std::shared_ptr<void> share(std::shared_ptr<void> mine);

 private:
  std::shared_ptr<ThreadMeeting> meeting_;
  std::vector<RankInfo> all_;
  int rank_;
  double timeout_;
};

/// By rank; each is used, and destroyed, by its own thread. One that is destroyed unused ends the waiting of
/// the others. Their RankInfo::source is "threads".
std::vector<std::unique_ptr<ThreadRendezvous>> meet_in_threads(int ranks, double timeout_seconds);

}  // namespace convoy
