// What a simulation consists of: the machines, the ranks, and what has happened to them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/launcher.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/rank.h"
#include "tests/simulation/schedule.h"
#include "tests/simulation/scheduler.h"

namespace simulation {

struct World {
  const Schedule& schedule;
  Scheduler scheduler;
  Network network;
  std::vector<RankRecord> ranks;       // by id
  std::unique_ptr<Launcher> launcher;  // null: the ranks are started without convoy-launch
  std::map<int, Time> at_fault;        // the ids of ranks, and since when
  std::set<const Fault*> happened;     // others met no process
  std::set<int> cut_hosts;             // for good
  std::map<Process*, int> stops;       // by faults that have not ended
  Time last_fault = 0;                 // begin, or end
  bool was_suspended_in_job = true;    // and not at its start or end
  bool was_silenced_in_job = false;

  Host* host(int index) const { return network.hosts()[static_cast<std::size_t>(index)].get(); }
  /// Returns whether all ranks have joined, and none has ended.
  bool is_job_complete() const {
    for (const RankRecord& rank : ranks)
      if (!rank.has_joined || rank.exit_code >= 0 || rank.process->has_ended) return false;
    return true;
  }
};

}  // namespace simulation
