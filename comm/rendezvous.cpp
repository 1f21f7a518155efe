#include "comm/rendezvous.h"

#include "comm/host.h"
#include "comm/meeting_plan.h"
#include "comm/mpi_rendezvous.h"
#include "comm/store_rendezvous.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

class OneProcess final : public Rendezvous {
 public:
  explicit OneProcess(const MeetingPlan& plan) : note_(plan.note) {
    const HostId host = this_host();
    all_ = infos_of({&host, 1}, plan.source);
  }

  const RankInfo& info() const override { return all_.front(); }
  const std::vector<RankInfo>& all() const override { return all_; }
  Store* store() override { return nullptr; }
  std::vector<std::string> all_gather(const std::string& mine) override { return {mine}; }
  void barrier() override {}
  std::string note() const override { return note_; }

 private:
  const std::string note_;
  std::vector<RankInfo> all_;
};

}  // namespace

std::unique_ptr<Rendezvous> Rendezvous::meet(const RendezvousOptions& options) {
  check(options.timeout_seconds > 0, "ranks wait for each other for more than {} s", options.timeout_seconds);
  const MeetingPlan plan = plan_meeting(options.where, environment_variables());
  switch (plan.how) {
    case MeetingPlan::How::mpi: return meet_by_mpi(plan, options);
    case MeetingPlan::How::tcp: return meet_by_tcp(plan, options);
    case MeetingPlan::How::file: return meet_by_file(plan, options);
    case MeetingPlan::How::alone: break;
  }
  return std::make_unique<OneProcess>(plan);
}

}  // namespace convoy
