// ControlPlane: a rank's handle to what the ranks of a job tell each other besides their collectives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/control/host_agent.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/core/collective_monitor.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/comm/core/rank_observer.h"

namespace convoy::dist {

/// Options of a control plane. Its thread calls the functions.
struct ControlOptions {
  double timeout_seconds = 300;    // of collectives, and of connect()
  double warn_after_seconds = 10;  // without progress of any rank
  /// Receives warnings about ranks that hold up the others, on one rank of the job.
  std::function<void(const std::string&)> on_warning;
  /// Receives the reason why the job ends, once, on every rank: the first cause, not its consequences.
  std::function<void(const std::string&)> on_verdict;
};

/// A rank publishes its step, its phase and its collectives in memory that the ranks of a host share, which
/// costs no message. The agent of the host (host_agent.h) reads it. So the job knows who holds it up and why
/// it ends, and all ranks stop after the same step. The last events of a rank can be read after its process
/// was killed (flight_recorder.h).
///
/// One thread of the rank makes all calls, except where a function says otherwise.
class ControlPlane final : public RankObserver {
 public:
  /// Joins the ranks of the job. Collective. `rendezvous` must outlive the result. Throws PeerError if the
  /// hosts cannot connect to each other by TCP within the timeout.
  static std::unique_ptr<ControlPlane> connect(Rendezvous& rendezvous, ControlOptions options);
  /// Calls leave().
  ~ControlPlane() override;

  Phase enter(Phase phase) override;
  void set_step(std::int64_t step) override;
  /// Blocks only if a rank has a code: until the ranks agree on the point at which they stop, which is this one or the
  /// next one.
  int stop_code(int local) override;
  /// Also passes the warning on to rank 0, whose on_warning receives it with the name of the rank: at most
  /// RankSlot::kWarnings warnings of a rank, without those that rank 0 has as well.
  void warn(const std::string& text) override;

  /// Returns the observer of one communicator of this rank, such as "gradients". Returns null for a fifth
  /// name. It stays valid after this object is destroyed.
  std::shared_ptr<CollectiveMonitor> monitor(const std::string& name);
  /// Returns the time before which no collective of this rank should time out: other ranks make progress, or
  /// read or write files.
  std::shared_ptr<const DeadlineFloor> deadline_floor() const { return floor_; }

  /// Returns a function that records an allocation of this many bytes. Any thread may call it, also after this object
  /// is destroyed.
  std::function<void(std::size_t)> allocation_recorder() const;
  /// Smaller allocations are too many to be recorded.
  static constexpr std::size_t kRecordedBytes = std::size_t{64} << 20;
  /// Tells all ranks that this one fails. `is_consequence` if it fails because another rank did. Thread-safe.
  void fail(const std::string& reason, bool is_consequence) noexcept;
  /// Returns why the job ends; an empty string if that is not known after `wait_seconds`. Also waits until
  /// the flight recorders of this host have been written, for 2 s at most.
  std::string verdict(double wait_seconds);

  /// Sets the directory for the flight recorders of all ranks, which are written if the job fails. Not
  /// created before.
  void set_dump_directory(const std::filesystem::path& directory);
  /// Leaves the job in order: the exit of this process is no failure any more.
  void leave();

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
