// JobAttempt: the ranks of a job from their start until all have ended.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/options.h"

namespace convoy::launcher {

struct Group;
struct Message;

/// How a rank has ended. Without a status, the connection to its host was lost.
struct RankEnd {
  int rank = 0;
  std::string host;
  std::optional<ExitStatus> status;
  bool was_late = false;  // the launcher killed it, because it did not end after another rank failed
};
/// Returns "rank 2 on node7 was killed by SIGKILL".
std::string describe(const RankEnd& end);

struct AttemptResult {
  std::vector<RankEnd> ends;               // in the order of time
  std::vector<std::string> missing_hosts;  // could not be reached; no rank was started
  int continuations = 0;                   // failures after which the other ranks went on
  int signal = 0;                          // stop signal of convoy-launch itself; 0: none
};

/// Starts an agent on each host, which starts the ranks. Passes on their output and stop signals. If a rank
/// fails, the others have --grace seconds to end.
class JobAttempt {
 public:
  /// restarts: how many restarts preceded this start. The ranks may continue without the failed ones at most
  /// `max_continuations` times. The references must outlive this object.
  JobAttempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts,
             int max_continuations);
  /// Runs all ranks until they have ended. Blocks.
  AttemptResult run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Host {
    HostPlace place;
    std::unique_ptr<ChildProcess> agent;  // null: lost
    int port = 0;                         // a free port that no group has used; 0: the agent has not told one
    bool seeks_port = true;
  };
  struct Rank {
    int rank = 0;
    Host* host = nullptr;
    bool waits = false;     // for a new group
    std::int64_t step = 0;  // number of completed steps, if it waits
    bool is_late = false;
    bool has_ended = false;
  };

  void start_agents();
  /// Waits until all agents are ready. Returns false if one is not.
  bool await_agents();
  void start_ranks();
  /// Waits for output for a short time, and handles it.
  void poll_agents();
  void handle(Host& host, const Message& message);
  void end_rank(Rank& rank, std::optional<ExitStatus> status);
  void forward_signal();
  /// If all remaining ranks wait for a new group, forms it, or tells them that there is none.
  void regroup();
  void kill_stragglers();
  /// Numbers the remaining ranks, and tells them.
  void form_group();
  /// Returns the remaining rank that has completed the most steps.
  Rank& rank_with_max_steps();
  /// Tells the agents the group of their ranks, by `send`.
  void send_groups(const std::function<void(Host&, const Group&)>& send);
  bool is_running() const;
  void print(bool is_error, const std::string& source, const std::string& text) const;

  const LaunchOptions& options_;
  int restarts_, max_continuations_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<int, Rank> ranks_;  // by id
  AttemptResult result_;
  std::optional<Clock::time_point> deadline_;  // for the ranks to end after a failure
};

}  // namespace convoy::launcher
