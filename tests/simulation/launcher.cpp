#include "tests/simulation/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/cluster/launcher/options.h"
#include "convoy/apps/cluster/launcher/supervisor.h"
#include "tests/simulation/world.h"

namespace simulation {
namespace {

using namespace convoy::launcher;

constexpr Time kMaxStart = 30 * kMillisecond;  // of the program of a rank
constexpr Time kMaxShellStart = 10 * kMillisecond;
constexpr double kBackoffSeconds = 0.2;
constexpr Time kRetry = 200 * kMillisecond;

}  // namespace

Launcher::Launcher(World& world)
    : world_(world),
      process_(network()->add_process(network()->add_host("launcher"), "convoy-launch")),
      output_(new TextFile),
      grace_(world.schedule.comm_timeout + 2) {
  process_->set_environment(std::vector<std::string>());
  output_->references = 2;
  process_->streams = {new File, output_, output_};
  process_->on_send = [this](Host* host, const std::string& bytes) { read_messages(host, bytes); };
  network()->execute = [this](Process* process, const std::vector<std::string>& command) {
    execute(process, command);
  };
}

void Launcher::start() {
  scheduler()->start(process_, [this] {
    exit_code_ = run();
    network()->note("convoy-launch ends with " + std::to_string(exit_code_));
    process_->end(exit_code_ << 8);
  });
}

int Launcher::run() {
  const Schedule& schedule = world_.schedule;
  LaunchOptions options;
  options.command = {"/rank"};
  options.remote_command = "/shell {host}";
  options.max_restarts = schedule.max_restarts;
  if (schedule.may_regroup) options.min_ranks = schedule.min_ranks;
  options.host_cooldown = schedule.host_cooldown;
  options.backoff = kBackoffSeconds;
  options.grace = grace_;
  options.start_timeout = schedule.comm_timeout;
  options.host_timeout = schedule.host_timeout;
  std::vector<HostPlace> hosts, spares;
  for (int host = 0; host < schedule.hosts; ++host)
    hosts.push_back({.name = "host-" + std::to_string(host), .ranks = 0});
  for (int rank = 0; rank < schedule.ranks; ++rank)
    ++hosts[static_cast<std::size_t>(schedule.host_of(rank))].ranks;
  for (int spare = 0; spare < schedule.spares; ++spare)
    spares.push_back({.name = "host-" + std::to_string(schedule.hosts + spare), .ranks = hosts.back().ranks});
  return supervise(options, hosts, spares);
}

bool Launcher::has_given_up(int attempt, Time at) const {
  const auto next = attempts_.find(attempt + 1);
  return (next != attempts_.end() && next->second <= at) || (process_->has_ended && process_->ended_at <= at);
}

std::vector<std::string> Launcher::lines() const {
  std::vector<std::string> lines;
  std::istringstream text(output_->text);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("convoy-launch: ")) lines.push_back(line);
  return lines;
}

void Launcher::execute(Process* process, const std::vector<std::string>& command) {
  if (command.front() == "/rank") return start_rank(process);
  last_start_ = scheduler()->now();
  for (const auto& host : network()->hosts())
    if (command.size() > 1 && host->name == command[1]) return start_agent(process, host.get());
  process->end(127 << 8);
}

void Launcher::start_agent(Process* shell, Host* host) {
  if (shell->has_ended) return;
  if (network()->link(shell->host, host).is_down() || host->freezes > 0)
    return scheduler()->at(scheduler()->now() + kRetry, [this, shell, host] { start_agent(shell, host); });
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
  if (world_.schedule.port_is_taken && attempt_ == 0)
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
  std::map<std::string, int> numbers;
  for (const std::string& line : process->variables)
    for (const std::string name : {"RANK", kRestartsVariable})
      if (line.starts_with(name + "=")) numbers[name] = std::stoi(line.substr(name.size() + 1));
  RankRecord& record = *world_.find_rank(numbers.at(kRestartsVariable), numbers.at("RANK"));
  process->name = "rank " + std::to_string(record.id);
  process->record = &record;
  record.process = process;
  const auto start = static_cast<Time>(scheduler()->random(kMaxStart));
  record.last_progress = scheduler()->now() + start;
  scheduler()->at(record.last_progress, [this, process, &record] {
    if (!process->has_ended)
      scheduler()->start(process, [this, &record] { run_rank(world_.schedule, record); });
  });
}

void Launcher::read_messages(Host* host, const std::string& bytes) {
  std::istringstream text(bytes);
  for (std::string line; std::getline(text, line);) add_group(host, line);
}

void Launcher::add_group(Host* host, const std::string& line) {
  const Message message = parse_message(line);
  Group group;
  if (message.kind == kind::kSignal) grows_ = true;
  if (message.kind == kind::kStart) {
    const Start start = message.content.get<Start>();
    group = start.group;
    attempt_ = std::stoi(start.environment.at(kRestartsVariable));
    attempts_.emplace(attempt_, scheduler()->now());
    world_size_ = group.world_size;
    for (const RankPlace& place : group.ranks) world_.add_rank(attempt_, place.id, host);
  } else if (message.kind == kind::kGroup) {
    group = message.content.get<Group>();
  } else {
    return;
  }
  if (std::exchange(last_job_, group.job) != group.job)
    begins_.push_back({.checkpoint = world_.checkpoint, .is_growth = std::exchange(grows_, false)});
  for (const RankPlace& place : group.ranks)
    groups_[group.job][place.rank] = world_.find_rank(attempt_, place.id);
}

}  // namespace simulation
