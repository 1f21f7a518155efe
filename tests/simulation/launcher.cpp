#include "tests/simulation/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "convoy/apps/cluster/launcher/job_attempt.h"
#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/cluster/launcher/options.h"
#include "convoy/apps/cluster/launcher/restart_policy.h"
#include "convoy/apps/cluster/launcher/supervisor.h"

namespace simulation {
namespace {

using namespace convoy::launcher;

constexpr Time kMaxStart = 30 * kMillisecond;  // of the program of a rank
constexpr Time kMaxShellStart = 10 * kMillisecond;
constexpr Time kRetry = 200 * kMillisecond;

}  // namespace

Launcher::Launcher(const Schedule& schedule, std::vector<RankRecord>& ranks)
    : schedule_(schedule),
      ranks_(ranks),
      process_(network()->add_process(network()->add_host("launcher"), "convoy-launch")),
      output_(new TextFile),
      grace_(schedule.comm_timeout + 2) {
  process_->set_environment(std::vector<std::string>());
  output_->references = 2;
  process_->streams = {new File, output_, output_};
  process_->on_send = [this](const std::string& bytes) { read_messages(bytes); };
  network()->execute = [this](Process* process, const std::vector<std::string>& command) {
    execute(process, command);
  };
}

void Launcher::start() {
  scheduler()->start(process_, [this] {
    exit_code_ = run();
    network()->note("convoy-launch ends with " + std::to_string(exit_code_) + ": " + reason_);
    process_->end(exit_code_ << 8);
  });
}

int Launcher::run() {
  LaunchOptions options;
  options.command = {"/rank"};
  options.remote_command = "/shell {host}";
  options.max_restarts = 3;
  if (schedule_.may_regroup) options.min_ranks = 1;
  options.host_cooldown = 1e6;  // no host comes back
  options.grace = grace_;
  options.start_timeout = schedule_.comm_timeout;
  options.host_timeout = schedule_.host_timeout;
  std::vector<HostPlace> hosts;
  for (int host = 0; host < schedule_.hosts; ++host)
    hosts.push_back({.name = "host-" + std::to_string(host), .ranks = 0});
  for (int rank = 0; rank < schedule_.ranks; ++rank)
    ++hosts[static_cast<std::size_t>(schedule_.host_of(rank))].ranks;
  HostPool pool(hosts, {}, *options.host_cooldown);
  RestartBudget budget(options.max_restarts);
  const AttemptResult result = run_attempt(options, hosts, 0, pool, budget);
  const Decision decision = decide(result, pool, budget, options.min_ranks);
  reason_ = decision.reason;
  return decision.exit_code;
}

void Launcher::execute(Process* process, const std::vector<std::string>& command) {
  if (command.front() == "/rank") return start_rank(process);
  for (const auto& host : network()->hosts())
    if (command.size() > 1 && host->name == command[1]) return start_agent(process, host.get());
  process->end(127 << 8);
}

void Launcher::start_agent(Process* shell, Host* host) {
  Process* const agent = network()->add_process(host, "agent of " + host->name);
  agents_.push_back(agent);
  shell->name = "shell of " + host->name;
  agent->set_environment(std::vector<std::string>());
  agent->streams = std::exchange(shell->streams, {});
  for (File* const stream : agent->streams)
    if (auto* const socket = dynamic_cast<Socket*>(stream)) Network::move(socket, host);
  agent->on_end.push_back([shell, agent] {  // the shell learns of it through the network
    const auto tell = [shell, agent](const auto& again) -> void {
      if (network()->link(shell->host, agent->host).is_down())
        return scheduler()->at(scheduler()->now() + kRetry, [again] { again(again); });
      shell->end(agent->status);
    };
    tell(tell);
  });
  // Another program takes a port that the agent has found to be free: of the first new group.
  if (schedule_.port_is_taken)
    agent->on_unused_port = [host, probes = 0](int port) mutable {
      if (++probes != 2) return;
      auto* const other = new Socket;
      other->host = host;
      other->state = Socket::State::listening;
      other->backlog = 16;
      host->listeners.emplace(port, other);
    };
  const auto start = static_cast<Time>(scheduler()->random(kMaxShellStart));
  scheduler()->at(scheduler()->now() + start, [agent] {
    if (!agent->has_ended) scheduler()->start(agent, [agent] { agent->end(run_host_agent() << 8); });
  });
}

void Launcher::start_rank(Process* process) {
  int id = -1;
  for (const std::string& line : process->variables)
    if (line.starts_with("RANK=")) id = std::atoi(line.c_str() + 5);
  RankRecord& record = ranks_.at(static_cast<std::size_t>(id));
  process->name = "rank " + std::to_string(id);
  process->record = &record;
  record.process = process;
  const auto start = static_cast<Time>(scheduler()->random(kMaxStart));
  record.last_progress = scheduler()->now() + start;
  scheduler()->at(record.last_progress, [this, process, &record] {
    if (!process->has_ended) scheduler()->start(process, [this, &record] { run_rank(schedule_, record); });
  });
}

void Launcher::read_messages(const std::string& bytes) {
  const Message message = parse_message(bytes.substr(0, bytes.find('\n')));
  Group group;
  if (message.kind == kind::kStart)
    group = message.content.get<Start>().group;
  else if (message.kind == kind::kGroup)
    group = message.content.get<Group>();
  else
    return;
  for (const RankPlace& place : group.ranks) groups_[group.job][place.rank] = place.id;
}

}  // namespace simulation
