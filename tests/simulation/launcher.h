// convoy-launch and its agents in a simulation: the code of apps/cluster/launcher, and the machines that it finds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/simulation/rank.h"

namespace simulation {

struct World;

/// A process convoy-launch on a host of its own, which starts an agent on each host of the job by a remote shell, and
/// the agents start the ranks. After a failure the ranks go on without those that fail, or convoy-launch starts them again.
class Launcher {
 public:
  /// A begin of the ranks: of an attempt, or of a new group.
  struct Begin {
    std::int64_t checkpoint = 0;  // World::checkpoint then
    bool is_growth = false;       // convoy-launch has stopped the ranks itself, to go on with more
  };

  /// The world must outlive the launcher.
  explicit Launcher(World& world);
  /// Starts convoy-launch.
  void start();

  Process* process() const { return process_; }
  const std::vector<Process*>& agents() const { return agents_; }
  /// Returns the ranks of a group, by their numbers in it; empty if it is unknown.
  const std::map<int, RankRecord*>& group(const std::string& job) { return groups_[job]; }
  /// Returns the newest group.
  const std::map<int, RankRecord*>& last_group() { return groups_[last_job_]; }
  const std::vector<Begin>& begins() const { return begins_; }
  /// Returns whether the ranks of this attempt are no part of the job any more.
  bool has_given_up(int attempt, Time at) const;
  /// Returns the number of ranks with which the newest attempt has begun.
  int world_size() const { return world_size_; }
  /// Returns when it has last started an agent.
  Time last_start() const { return last_start_; }
  /// Returns the lines that convoy-launch itself has printed.
  std::vector<std::string> lines() const;
  int exit_code() const { return exit_code_; }
  double grace_seconds() const { return grace_; }

 private:
  int run();
  /// Does what the kernel and the remote shell do for a new process.
  void execute(Process* process, const std::vector<std::string>& command);
  /// Starts an agent as soon as the host answers.
  void start_agent(Process* shell, Host* host);
  void start_rank(Process* process);
  /// Reads messages of convoy-launch to the agent of a host, for the numbers of ranks in the groups.
  void read_messages(Host* host, const std::string& bytes);
  void add_group(Host* host, const std::string& line);

  World& world_;
  Process* process_;
  TextFile* output_;
  std::vector<Process*> agents_;
  std::map<std::string, std::map<int, RankRecord*>> groups_;  // by name
  std::string last_job_;
  std::vector<Begin> begins_;
  std::map<int, Time> attempts_;  // when each has begun
  bool grows_ = false;
  int attempt_ = 0, world_size_ = 0;
  Time last_start_ = 0;
  int exit_code_ = -1;
  double grace_;
};

}  // namespace simulation
