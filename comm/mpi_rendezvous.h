// Ranks that meet through MPI.
#pragma once

#include <exception>
#include <memory>

#include "comm/meeting_plan.h"
#include "comm/message_links.h"
#include "comm/rendezvous.h"

namespace convoy {

class MpiLinks;
class MpiSession;

class MpiRendezvous final : public Rendezvous {
 public:
  MpiRendezvous(const MeetingPlan& plan, const RendezvousOptions& options);
  ~MpiRendezvous() override;

  const RankInfo& info() const override;
  const std::vector<RankInfo>& all() const override { return all_; }
  Store* store() override { return nullptr; }
  std::vector<std::string> all_gather(const std::string& mine) override;
  void barrier() override { all_gather(""); }
  std::string note() const override { return note_; }

  /// A group of all ranks, with messages of its own. Every rank calls it.
  std::unique_ptr<MessageLinks> new_links();
  std::shared_ptr<MpiSession> session() const { return session_; }

 private:
  const double timeout_;
  const std::string note_;
  const int exceptions_ = std::uncaught_exceptions();
  std::shared_ptr<MpiSession> session_;
  std::unique_ptr<MpiLinks> links_;
  std::vector<RankInfo> all_;
};

/// UsageError where the build has no MPI, or MPI and the plan do not agree on how many ranks there are.
std::unique_ptr<Rendezvous> meet_by_mpi(const MeetingPlan& plan, const RendezvousOptions& options);

}  // namespace convoy
