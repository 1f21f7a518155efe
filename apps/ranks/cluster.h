// Cluster: what the component cluster adds to the ranks of a program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/job_control.h"

namespace convoy {

/// A variable of a new group (Cluster::request_group).
inline constexpr const char* kGroupSeconds = "CONVOY_GROUP_SECONDS";

/// The functions of the component cluster that the ranks of a program call.
struct Cluster {
  /// The rendezvous without MPI; null: there is none.
  dist::RendezvousByStore* by_store = nullptr;
  /// The communicators between hosts without MPI, by the names of cpu_communicator_kind().
  std::map<std::string, std::unique_ptr<dist::Communicator> (*)(dist::Rendezvous&, const dist::CommOptions&)>
      communicators;
  /// Joins the control of the job. Collective. `rendezvous` must outlive the result.
  std::unique_ptr<dist::JobControl> (*connect)(dist::Rendezvous& rendezvous, dist::ControlOptions options);
  /// Returns how many times convoy-launch has restarted this job; 0 without it.
  int (*restarts_of_job)();
  /// Returns whether convoy-launch lets the ranks of this job continue without those that failed
  /// (--min-ranks).
  bool (*may_regroup)();
  /// Asks convoy-launch for a new group, after a peer has failed. `step` is the number of training steps that
  /// this rank has completed: the most advanced rank becomes rank 0. Blocks until all other ranks have asked
  /// as well, or have ended. Returns the environment variables for the rendezvous of the new group, and
  /// kGroupSeconds, in which the ranks should find each other; nullopt if there is none, because too few
  /// ranks remain or the job is to stop.
  std::optional<std::map<std::string, std::string>> (*request_group)(std::int64_t step);
  /// Tells convoy-launch how far this rank is: the number of completed training steps, and the step of the newest
  /// checkpoint that the rank has completed; -1: none. Without system calls.
  void (*report_progress)(std::int64_t step, std::int64_t saved_step);
};

/// Returns the component of this build: apps/cluster/cluster.cpp defines the function, and
/// without_cluster.cpp in a build without the component.
const Cluster& cluster();

}  // namespace convoy
