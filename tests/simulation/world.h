// What a simulation consists of: the machines, the ranks, and what has happened to them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
  std::deque<RankRecord> ranks;                // of all attempts, in the order in which these begin
  std::unique_ptr<Launcher> launcher;          // null: the ranks are started without convoy-launch
  std::int64_t checkpoint = 0;                 // the newest one that is complete: number of steps
  std::map<const RankRecord*, Time> at_fault;  // since when
  std::map<const Host*, Time> hosts_at_fault;  // with all their ranks
  std::set<const Fault*> happened;             // others met no process
  std::set<int> cut_hosts;                     // for good
  std::map<Process*, int> stops;               // by faults that have not ended
  Time last_fault = 0;                         // begin, or end
  bool was_suspended_in_job = true;            // and not at its start or end
  bool was_silenced_in_job = false;
  decltype(RankRecord::on_end_of_wait) on_end_of_wait;  // of all ranks

  Host* host(int index) const { return network.hosts()[static_cast<std::size_t>(index)].get(); }
  /// Adds a rank of this attempt, which has not started yet.
  RankRecord& add_rank(int attempt, int id, Host* host) {
    RankRecord& rank = ranks.emplace_back();
    rank.id = id;
    rank.attempt = attempt;
    rank.host = host;
    rank.checkpoint = &checkpoint;
    rank.on_end_of_wait = on_end_of_wait;
    return rank;
  }
  /// Returns the ranks of the newest attempt.
  std::vector<RankRecord*> present() {
    std::vector<RankRecord*> found;
    for (RankRecord& rank : ranks)
      if (rank.attempt == ranks.back().attempt) found.push_back(&rank);
    return found;
  }
  /// Returns null if the rank is not there.
  RankRecord* find_rank(int attempt, int id) {
    for (RankRecord& rank : ranks)
      if (rank.attempt == attempt && rank.id == id) return &rank;
    return nullptr;
  }
  /// Returns whether all ranks have joined, and none has ended.
  bool is_job_complete() {
    const std::vector<RankRecord*> all = present();
    if (static_cast<int>(all.size()) < (launcher ? launcher->world_size() : schedule.ranks)) return false;
    for (const RankRecord* const rank : all)
      if (!rank->has_joined || rank->exit_code >= 0 || rank->process->has_ended) return false;
    return !all.empty();
  }
};

}  // namespace simulation
