#include "convoy/apps/cluster/launcher/job_attempt.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/common/signals.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {
namespace {

const std::string kLoopback = "127.0.0.1";

/// Returns the environment variables that ranks of other hosts get from this process.
std::map<std::string, std::string> forwarded_environment(const std::string& more) {
  constexpr const char* kPrefixes[] = {"CONVOY_", "NCCL_", "OMP_", "LD_LIBRARY_PATH"};
  const std::string names = fmt::format(",{},", more);
  std::map<std::string, std::string> forwarded;
  for (const auto& [name, value] : dist::environment_variables()) {
    const bool is_named = names.find(fmt::format(",{},", name)) != std::string::npos;
    if (is_named ||
        std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); }))
      forwarded[name] = value;
  }
  return forwarded;
}

/// See run_attempt().
class JobAttempt {
 public:
  JobAttempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts, HostPool& pool,
             RestartBudget& budget)
      : options_(options), restarts_(restarts), pool_(pool), budget_(budget) {
    for (const HostPlace& place : hosts) hosts_.push_back(std::make_unique<Host>(Host{.place = place}));
  }

  /// Runs all ranks until they have ended. Blocks.
  AttemptResult run() {
    for (const auto& host : hosts_) start_agent(*host);
    if (!await_agents()) return result_;
    start_ranks();
    while (std::ranges::any_of(ranks_, [](const auto& entry) { return !entry.second.has_ended; })) {
      poll_agents();
      forward_signal();
      regroup();
      kill_stragglers();
      grow();
    }
    return result_;
  }

 private:
  struct Host {
    HostPlace place;
    std::unique_ptr<ChildProcess> agent;   // null: lost
    std::optional<dist::Deadline> answer;  // for the next message of the agent, once it is ready (Wait::host)
    int port = 0;                          // that was free just now, for the next group; 0: none
    bool seeks_port = true;
    bool is_candidate = false;  // for grow(): has no rank, and is asked whether it answers
  };
  struct Rank {
    int rank = 0;
    Host* host = nullptr;
    bool waits = false;     // for a new group
    std::int64_t step = 0;  // number of completed steps, if it waits
    bool is_late = false;
    bool has_ended = false;
  };

  void start_agent(Host& host) {
    const std::vector<std::string> agent = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                            "--host-agent"};
    const bool in_slurm = std::getenv("SLURM_JOB_ID") != nullptr;
    const std::string remote = !options_.remote_command.empty() ? options_.remote_command
                               : in_slurm ? "srun --nodes=1 --ntasks=1 --overlap --nodelist={host}"
                                          : "ssh -o BatchMode=yes {host}";
    const bool is_local = options_.remote_command.empty() && is_this_host(host.place.name);
    host.agent = std::make_unique<ChildProcess>(
        ChildOptions{.command = is_local ? agent : agent_command(remote, host.place.name, agent),
                     .environment = dist::environment_variables(),
                     .is_agent = true});
  }

  /// Waits until all agents are ready. Returns false if one is not.
  bool await_agents() {
    const dist::Deadline end(options_.start_timeout);
    const auto are_ready = [&] {
      return std::ranges::all_of(hosts_, [](const auto& host) { return host->answer.has_value(); });
    };
    while (!are_ready() && result_.missing_hosts.empty() && !end.passed()) {
      poll_agents();
      if ((result_.signal = StopSignals::received()) != 0) return false;
    }
    if (are_ready()) return true;
    result_.missing_hosts.clear();
    for (const auto& host : hosts_)
      if (!host->answer) result_.missing_hosts.push_back(host->place.name);
    return false;
  }

  void start_ranks() {
    int rank = 0;
    for (const auto& host : hosts_)
      for (int local = 0; local < host->place.ranks; ++local, ++rank)
        ranks_[rank] = {.rank = rank, .host = host.get()};
    std::map<std::string, std::string> environment = forwarded_environment(options_.environment);
    environment[kRestartsVariable] = std::to_string(restarts_);
    if (std::string& secret = environment[dist::kSecretVariable]; secret.empty())
      secret = dist::random_token();
    environment[dist::kHostTimeoutVariable] = std::to_string(options_.host_timeout);
    environment[kRegroupVariable] = std::to_string(options_.min_ranks ? 1 : 0);
    std::vector<std::string> command = options_.command;
    command.front() = find_program(command.front());
    send_groups([&](Host& host, const Group& group) {
      host.agent->write_input(to_line(kind::kStart, Start{.command = command,
                                                          .directory = std::filesystem::current_path(),
                                                          .environment = environment,
                                                          .group = group,
                                                          .grace_seconds = options_.grace}));
    });
  }

  /// Waits for output for a short time, and handles it.
  void poll_agents() {
    std::vector<pollfd> descriptors;
    for (const auto& host : hosts_)
      if (host->agent) host->agent->add_descriptors(descriptors);
    poll(descriptors.data(), descriptors.size(), 200);
    for (const auto& host : hosts_) {
      if (!host->agent) continue;
      const bool has_ended = host->agent->poll_exit().has_value();  // before its last lines
      host->agent->read_lines([&](Stream stream, const std::string& line) {
        const Message message = stream == Stream::output ? parse_message(line) : Message{};
        if (message.kind.empty()) return print(true, host->place.name, line);
        host->answer.emplace(options_.host_timeout);
        handle(*host, message);
      });
      const bool is_silent = host->answer && host->answer->passed();
      if (is_silent && !host->is_candidate)
        say(fmt::format("{} has not answered for {:g} s and is lost", host->place.name,
                        options_.host_timeout));
      if (has_ended || is_silent) lose(*host);
    }
  }

  /// Counts the ranks of a host as ended. An agent that runs ends them once it notices.
  void lose(Host& host) {
    host.agent.reset();
    if (host.is_candidate) return pool_.exclude(host.place.name);
    if (!host.answer) result_.missing_hosts.push_back(host.place.name);
    for (auto& [id, rank] : ranks_)
      if (rank.host == &host && !rank.has_ended) end_rank(rank, std::nullopt);
  }

  void handle(Host& host, const Message& message) {
    if (message.kind == kind::kReady) {
      host.port = message.content.get<int>();
      host.seeks_port = false;
    }
    if (message.kind == kind::kBeat)
      result_.saved = std::max(result_.saved, message.content.get<std::int64_t>());
    if (message.kind == kind::kDrain && result_.signal == 0) result_.drained_hosts.push_back(host.place.name);
    if (message.kind == kind::kOutput) {
      const auto output = message.content.get<Output>();
      print(output.is_error, std::to_string(ranks_.at(output.id).rank), output.text);
    }
    if (message.kind == kind::kRegroup) {
      const Regroup regroup = message.content.get<Regroup>();
      result_.saved = std::max(result_.saved, regroup.saved);
      ranks_.at(regroup.id).waits = true;
      ranks_.at(regroup.id).step = regroup.step;
    }
    if (message.kind == kind::kExit) {
      const Exit exit = message.content.get<Exit>();
      result_.saved = std::max(result_.saved, exit.saved);
      end_rank(ranks_.at(exit.id), ExitStatus{.code = exit.code, .signal = exit.signal}, exit.step);
    }
  }

  void end_rank(Rank& rank, std::optional<ExitStatus> status, std::int64_t step = -1) {
    rank.has_ended = true;
    result_.ends.push_back({.rank = rank.rank,
                            .host = rank.host->place.name,
                            .status = status,
                            .was_late = rank.is_late && status,
                            .step = step});  // a lost host is a failure in any case
    if (status && status->is_success()) return tell_all(kind::kFinish);
    if (deadline_) return;
    deadline_.emplace(options_.grace);
  }

  void tell_all(const char* kind, const nlohmann::json& content = nullptr) {
    for (const auto& host : hosts_)
      if (host->agent) host->agent->write_input(to_line(kind, content));
  }

  void forward_signal() {
    const int signal = StopSignals::received();
    if (signal == result_.signal) return;
    result_.signal = signal;
    tell_all(kind::kSignal, signal);
  }

  /// If all remaining ranks wait for a new group, forms it, or tells them that there is none.
  void regroup() {
    int waiting = 0, running = 0;
    for (const auto& [id, rank] : ranks_) {
      waiting += !rank.has_ended && rank.waits ? 1 : 0;
      running += !rank.has_ended && !rank.waits ? 1 : 0;
    }
    if (waiting == 0) return;
    if (!deadline_)
      deadline_.emplace(options_.grace);  // for ranks that do not know that the group has failed
    if (running > 0) return;
    RestartBudget budget = budget_;
    budget.add(cause_of(result_.ends), result_.saved);
    const bool may_continue = result_.signal == 0 && !result_.grows && !budget.is_used_up() &&
                              waiting >= options_.min_ranks.value_or(waiting + 1);
    if (may_continue) return form_group(budget);
    for (auto& [id, rank] : ranks_) rank.waits = false;
    tell_all(kind::kEnd);
  }

  void kill_stragglers() {
    if (!deadline_ || !deadline_->passed()) return;
    deadline_.emplace(options_.grace);
    for (const auto& host : hosts_) {
      std::vector<int> late;
      bool was_late = false;
      for (auto& [id, rank] : ranks_)
        if (rank.host == host.get() && !rank.has_ended && !rank.waits) {
          was_late |= std::exchange(rank.is_late, true);
          late.push_back(id);
        }
      if (was_late) lose(*host);  // a rank does not end although it was killed
      if (host->agent && !late.empty()) host->agent->write_input(to_line(kind::kKill, late));
    }
  }

  /// If the job runs on fewer ranks than it was started with, and the pool has hosts for more, asks those without a rank
  /// whether they answer. Once all do, stops all ranks, which save: decide() starts them again on these hosts.
  void grow() {
    if (!options_.min_ranks || deadline_ || result_.signal != 0 || result_.grows) return;
    const std::vector<HostPlace> places = pool_.choose(/*may_use_excluded=*/false);
    if (ranks_of(places) <= static_cast<int>(ranks_.size())) return;
    bool all_answer = true;
    for (const HostPlace& place : places) {
      auto host = std::ranges::find_if(
          hosts_, [&](const auto& each) { return each->agent && each->place.name == place.name; });
      if (host == hosts_.end()) {
        host = hosts_.insert(host, std::make_unique<Host>(Host{.place = place, .is_candidate = true}));
        start_agent(**host);
        (*host)->answer.emplace(options_.start_timeout);
      }
      all_answer &= !(*host)->seeks_port || !(*host)->is_candidate;
    }
    if (!all_answer) return;
    result_.grows = true;
    say(fmt::format("hosts answer for {} ranks in place of {}; all ranks save, stop and start again",
                    ranks_of(places), ranks_.size()));
    tell_all(kind::kSignal, SIGTERM);
  }

  /// Numbers the remaining ranks, and tells them. `budget` includes the failure.
  void form_group(const RestartBudget& budget) {
    // The remaining rank that has completed the most steps has the newest state, which it sends to the others.
    const auto progress = [](const auto& entry) {
      return std::pair(!entry.second.has_ended, entry.second.step);
    };
    Rank& first = std::ranges::max_element(ranks_, {}, progress)->second;
    if (first.host->port == 0) {
      if (!std::exchange(first.host->seeks_port, true))
        first.host->agent->write_input(to_line(kind::kFindPort));
      return;
    }
    pool_.exclude(result_.ends);
    std::vector<std::string> failed;
    for (const RankEnd& end : std::exchange(result_.ends, {})) failed.push_back(describe(end));
    std::erase_if(ranks_, [](const auto& entry) { return entry.second.has_ended; });
    std::vector<int> others;
    for (const auto& [id, rank] : ranks_) others.push_back(rank.rank);
    std::ranges::sort(others);
    if (failed.empty()) failed.emplace_back("the new group has failed");
    say(fmt::format("{}; {} {} on", fmt::join(failed, "; "), dist::format_ranks(others),
                    others.size() == 1 ? "goes" : "go"));
    int next = 1;
    for (auto& [id, rank] : ranks_) {
      rank.rank = &rank == &first ? 0 : next++;
      rank.waits = false;
    }
    deadline_.reset();
    budget_ = budget;
    send_groups(
        [](Host& host, const Group& group) { host.agent->write_input(to_line(kind::kGroup, group)); });
  }

  /// Tells the agents the group of their ranks, by `send`.
  void send_groups(const std::function<void(Host&, const Group&)>& send) {
    const auto is_first = [](const auto& entry) { return entry.second.rank == 0; };
    Host& first = *std::ranges::find_if(ranks_, is_first)->second.host;
    Group group{
        .world_size = static_cast<int>(ranks_.size()),
        .address = is_this_host(first.place.name) && hosts_.size() == 1 ? kLoopback : first.place.name,
        .port = first.port,
        .job = dist::random_token(),
        .seconds = options_.grace / 2};
    for (const auto& host : hosts_) host->port = 0;
    for (const auto& host : hosts_) {
      group.ranks.clear();
      for (const auto& [id, rank] : ranks_)
        if (rank.host == host.get())
          group.ranks.push_back(
              {.id = id, .rank = rank.rank, .local_rank = static_cast<int>(group.ranks.size())});
      for (RankPlace& place : group.ranks) place.local_world_size = static_cast<int>(group.ranks.size());
      if (!group.ranks.empty()) send(*host, group);
    }
  }

  void print(bool is_error, const std::string& source, const std::string& text) {
    const std::string prefix = options_.prefix ? fmt::format("[{}] ", source) : "";
    fmt::print(is_error ? stderr : stdout, "{}{}\n", prefix, text);
  }
  static void say(const std::string& text) { fmt::print(stderr, "convoy-launch: {}\n", text); }

  const LaunchOptions& options_;
  const int restarts_;
  HostPool& pool_;
  RestartBudget& budget_;
  const dist::Suspension suspension_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<int, Rank> ranks_;  // by id
  AttemptResult result_;
  std::optional<dist::Deadline> deadline_;  // for the ranks to end after a failure
};

}  // namespace

AttemptResult run_attempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts,
                          HostPool& pool, RestartBudget& budget) {
  return JobAttempt(options, hosts, restarts, pool, budget).run();
}

}  // namespace convoy::launcher
