// ControlPlane: a rank's handle to what the ranks of a job tell each other besides their collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/control/host_agent.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/core/job_control.h"

namespace convoy::dist {

/// A rank publishes its step, its phase and its collectives in memory that the ranks of a host share, which
/// costs no message. The agent of the host (host_agent.h) reads it. So the job knows who holds it up and why
/// it ends, and all ranks stop after the same step. The last events of a rank can be read after its process
/// was killed (flight_recorder.h).
///
/// One thread of the rank makes all calls, except where a function says otherwise.
class ControlPlane final : public JobControl {
 public:
  /// Joins the ranks of the job. Collective. `rendezvous` must outlive the result. Throws PeerError if the
  /// hosts cannot connect to each other by TCP within the timeout.
  static std::unique_ptr<ControlPlane> connect(Rendezvous& rendezvous, ControlOptions options);
  /// Calls leave().
  ~ControlPlane() override;

  Phase enter(Phase phase) override;
  void set_step(std::int64_t step) override;
  /// Blocks only if a rank has a code: until the ranks agree on the point at which they stop, which is this
  /// one or the next one.
  int stop_code(int local) override;
  /// Also passes the warning on to rank 0, whose on_warning receives it with the name of the rank: at most
  /// RankSlot::kWarnings warnings of a rank, without those that rank 0 has as well.
  void warn(const std::string& text) override;

  /// Returns null for a fifth name.
  std::shared_ptr<CollectiveMonitor> monitor(const std::string& name) override;
  std::shared_ptr<const DeadlineFloor> deadline_floor() const override { return floor_; }
  std::function<void(std::size_t)> allocation_recorder() const override;
  void fail(const std::string& reason, bool is_consequence) noexcept override;
  std::string verdict(double wait_seconds) override;
  void set_dump_directory(const std::filesystem::path& directory) override;
  void leave() override;

 private:
  class Monitor;
  ControlPlane(Rendezvous& rendezvous, ControlOptions options);

  void watch();
  void act_on_verdict();
  /// Writes the flight recorders of this host, unless another rank does.
  void dump();
  ControlOptions options_;
  const std::vector<RankInfo>& all_;
  int rank_;
  std::string job_;  // a random name, in the files of the flight recorder
  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<DeadlineFloor> floor_ = std::make_shared<DeadlineFloor>();
  std::unique_ptr<HostAgent> agent_;  // null if there is one rank
  std::atomic<bool> is_leaving_ = false;
  bool has_acted_ = false;  // on the verdict
  std::thread thread_;      // not started if there is one rank
};

}  // namespace convoy::dist
