// The agent of a host: it sums up what the ranks do, names the slow one, and decides when and why all stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/cluster/control/agent_tree.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/cluster/control/rank_status.h"
#include "convoy/comm/cluster/control/status_group.h"
#include "convoy/comm/cluster/control/straggler_watch.h"

namespace convoy::dist {

/// A warning of one rank, on its way to the root.
struct AgentWarning {
  int rank = 0;
  std::string text;
  std::chrono::steady_clock::time_point since{};  // when it came to this host
};

/// The message of an agent to its parent: the ranks below it, and their new warnings and blocks of steps.
struct AgentReport {
  bool knows_of_stop = false;     // `ranks` was read after the stop request was visible to them
  std::vector<RankStatus> ranks;  // grouped()
  std::vector<AgentWarning> warnings;
  /// For each new block of steps of a rank: the rank, its step, and its RankStatus::Pace in microseconds; each number with
  /// a space behind it.
  std::string paces;
};

/// The message of an agent to its children: the decisions of the root.
struct AgentOrders {
  bool stop_requested = false;
  std::uint64_t stop_point = 0;  // 0: not decided
  int stop_code = 0;
  bool details = false;         // some rank is not quiet: the agents tell what the quiet ones do, too
  double deadline_seconds = 0;  // from now until collectives may time out
  std::string verdict;          // empty: the job goes on
};

/// The agents of all hosts form a tree. Each agent sends the states of the ranks below it to its parent,
/// twice a second and at once when one of them fails or is asked to stop. The root decides, and its decisions
/// go down the tree into the memory of each host.
///
/// Every rank has an agent, but only that of the first responsive rank of a host is active: the others take
/// over if its process is stopped or dies. An agent that has taken over has no connections and decides for
/// its own host alone. Not thread-safe.
class HostAgent {
 public:
  struct Options {
    double timeout_seconds = row_of(Wait::collective).seconds;  // without progress of any rank
    double io_timeout_seconds = row_of(Wait::storage).seconds;  // without bytes that move; 0: none
    double host_timeout_seconds = row_of(Wait::host).seconds;   // without a message of its agent
    double warn_after_seconds = 10;  // without progress of any rank; doubled after each warning
    double window_seconds = StragglerWatch::kWindowSeconds;  // for which a rank that is named was slow
    std::function<void(const std::string&)> on_warning;      // at the root
    std::function<void(const std::string&)> on_straggler;    // at the root
  };

  /// `tree` is null except on the first ranks of several hosts. The references must outlive the agent.
  HostAgent(const HostMemory& memory, const std::vector<RankInfo>& all, std::unique_ptr<AgentTree> tree,
            Options options);

  /// Does what is due, if this agent is the active one of its host. Call it at least every kPeriod, and after
  /// each change of the memory. With connections to other hosts, waits for messages, for up to 10 ms.
  void serve();
  /// Returns whether serve() waits for messages.
  bool has_connections() const { return tree_ != nullptr; }
  /// Tells the agents of other hosts that the ranks of this host leave in order. Call it last.
  void leave();

  static constexpr std::chrono::milliseconds kPeriod{100};

 private:
  using Clock = std::chrono::steady_clock;
  /// What is known of one child.
  struct Child {
    AgentReport report;  // the last one
    Clock::time_point received;
    bool has_left = false;
  };

  bool is_active() const;
  /// Notes a suspension of this process, in which no message could arrive; also one within a call just before this one.
  void observe_suspension();
  /// Returns an age in seconds without the suspensions of this process, which has not seen what ranks did then.
  double without_pauses(double age) const;
  /// Appends the new warnings of the ranks of this host to warnings_.
  void take_warnings();
  /// Appends the new blocks of steps of the ranks of this host to paces_.
  void take_paces(const std::vector<RankStatus>& local);
  /// Reports the warnings that have waited for so long for those of other ranks with the same text.
  void report_warnings(std::chrono::milliseconds after);
  /// Returns whether messages have arrived.
  bool receive();
  /// If the root has not heard of any of several hosts for a while, it was itself without a network, and what they sent
  /// arrives one by one. Does not count that time against them.
  void forgive_own_silence();
  void receive_from_parent(const AgentTree::Message& message);
  void receive_from_child(const AgentTree::Message& message);
  /// Handles the loss of the parent, without which this agent decides for the hosts below it.
  void lose_parent(const AgentTree::Message& message);
  /// Decides why the ranks below this agent end, if the parent has not answered for a while, and one has failed or
  /// the limit of Wait::host is reached.
  void decide_without_parent(const std::vector<RankStatus>& ranks);
  /// Returns the rank whose agent is the parent: "rank 0 on a".
  std::string parent_text() const;
  std::vector<RankStatus> all_known(std::vector<RankStatus> local) const;
  void decide(const std::vector<RankStatus>& ranks, bool know_of_stop);
  void decide_stop(const std::vector<RankStatus>& ranks, bool know_of_stop);
  void decide_verdict(const std::vector<RankStatus>& ranks);
  /// Returns a rank for which the others have waited as long as they may outside of a collective, or null.
  const RankStatus* overdue_of(const std::vector<RankStatus>& ranks) const;
  void extend_deadlines(const std::vector<RankStatus>& ranks);
  void warn_of_stall(const std::vector<RankStatus>& ranks);
  void warn_of_stragglers();
  void apply(const AgentOrders& orders);
  void send_up(const std::vector<RankStatus>& ranks, bool know_of_stop);
  void send_down();

  const HostMemory& memory_;
  const std::vector<RankInfo>& all_;
  std::unique_ptr<AgentTree> tree_;
  Options options_;
  std::map<int, Child> children_;  // by host
  bool has_parent_ = false;
  Clock::time_point parent_heard_{};  // when its last message arrived
  Clock::time_point now_{};           // of the last observe_suspension()
  AgentOrders orders_;                // the latest, of the root
  double next_warning_;               // seconds without progress
  const double quiet_seconds_;        // is_quiet()
  std::string paces_;                 // that have not been passed on, or considered
  std::vector<std::uint64_t> taken_;  // the last block of each rank of this host in paces_
  std::vector<RankStatus> paced_;     // at the root: the last blocks of all ranks
  StragglerWatch stragglers_;
  Clock::time_point
      consequence_seen_at_{};             // when a failure was first seen, all others being its consequences
  std::vector<AgentWarning> warnings_;    // that have not been passed on, or reported
  std::set<std::string> known_warnings_;  // the texts that the root has reported, and those of rank 0
  Clock::time_point send_up_at_{}, send_down_at_{};
  std::string sent_up_, sent_down_;  // the urgent parts of the last messages
  Clock::time_point observe_at_{};   // when the ranks of this host are due, without a change
  std::uint32_t seen_changes_ = 0;   // of HostSlot::changes
  Clock::duration suspended_ = Suspension::total();
  std::deque<std::pair<Clock::time_point, double>> pauses_;  // the last suspensions: ends, and seconds
};

}  // namespace convoy::dist
