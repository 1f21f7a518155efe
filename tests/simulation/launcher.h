// convoy-launch and its agents in a simulation: the code of apps/cluster/launcher, and the machines that it finds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/simulation/rank.h"

namespace simulation {

/// A process convoy-launch on a host of its own, which starts an agent on each host of the job by a remote shell, and
/// the agents start the ranks. The ranks go on without those that fail, or with --min-ranks of all.
class Launcher {
 public:
  /// The references must outlive the launcher.
  Launcher(const Schedule& schedule, std::vector<RankRecord>& ranks);
  /// Starts convoy-launch.
  void start();

  Process* process() const { return process_; }
  const std::vector<Process*>& agents() const { return agents_; }
  /// Returns the ids of the ranks of a group; empty if it is unknown.
  const std::map<int, int>& group(const std::string& job) { return groups_[job]; }
  /// Returns what convoy-launch has printed and, at its end, its reason and its exit code.
  const std::string& output() const { return output_->text; }
  const std::string& reason() const { return reason_; }
  int exit_code() const { return exit_code_; }
  double grace_seconds() const { return grace_; }

 private:
  int run();
  /// Does what the kernel and the remote shell do for a new process.
  void execute(Process* process, const std::vector<std::string>& command);
  void start_agent(Process* shell, Host* host);
  void start_rank(Process* process);
  /// Reads the messages of convoy-launch to its agents, for the numbers of ranks in the groups.
  void read_messages(const std::string& bytes);

  const Schedule& schedule_;
  std::vector<RankRecord>& ranks_;
  Process* process_;
  TextFile* output_;
  std::vector<Process*> agents_;
  std::map<std::string, std::map<int, int>> groups_;  // by name: ids by rank
  std::string reason_;
  int exit_code_ = -1;
  double grace_;
};

}  // namespace simulation
