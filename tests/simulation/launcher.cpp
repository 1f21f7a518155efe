#include "tests/simulation/launcher.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "convoy/apps/cluster/launcher/launcher_messages.h"

namespace simulation {
namespace {

using namespace convoy::launcher;

constexpr double kGroupSeconds = 3;  // for the ranks of a group to find each other
constexpr int kMaxGroups = 3;        // as --max-restarts

}  // namespace

Launcher::Launcher(const Schedule& schedule, std::vector<RankRecord>& ranks)
    : schedule_(schedule),
      ranks_(ranks),
      process_(network()->add_process(network()->add_host("launcher"), "convoy-launch")),
      received_(ranks.size()),
      steps_(ranks.size(), -1) {
  process_->set_environment({});
  for (const RankRecord& rank : ranks_) {
    const auto [agent, link] = network()->make_pair(rank.process->host);
    link->is_blocking = true;
    own_.push_back(network()->open(process_, agent));
    of_ranks_.push_back(network()->open(rank.process, link));
  }
}

void Launcher::run() {
  const auto has_ended = [](const RankRecord& rank) { return rank.process->has_ended; };
  while (!std::all_of(ranks_.begin(), ranks_.end(), has_ended)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    read_requests();
    answer();
  }
  process_->end(0);
}

void Launcher::read_requests() {
  for (std::size_t id = 0; id < ranks_.size(); ++id) {
    char block[4096];
    const ssize_t count = read(own_[id], block, sizeof block);
    if (count > 0) received_[id].append(block, static_cast<std::size_t>(count));
    const std::size_t end = received_[id].find('\n');
    if (end == std::string::npos) continue;
    const Message message = parse_message(received_[id].substr(0, end));
    received_[id].erase(0, end + 1);
    if (message.kind != kind::kRegroup) continue;
    steps_[id] = message.content.get<std::int64_t>();
    if (first_request_ == kNever) first_request_ = scheduler()->now();
  }
}

void Launcher::answer() {
  std::vector<int> waiting, running;
  for (int id = 0; id < static_cast<int>(ranks_.size()); ++id) {
    const auto at = static_cast<std::size_t>(id);
    if (ranks_[at].process->has_ended)
      steps_[at] = -1;
    else
      (steps_[at] >= 0 ? waiting : running).push_back(id);
  }
  if (waiting.empty()) return;
  const auto grace = static_cast<Time>((schedule_.comm_timeout + 2) * 1e9);
  if (!running.empty() && scheduler()->now() < first_request_ + grace) return;
  for (const int id : running) ranks_[static_cast<std::size_t>(id)].process->end(SIGKILL);
  first_request_ = kNever;
  if (groups_ == kMaxGroups) {
    const std::string line = to_line(kind::kEnd) + "\n";
    for (const int id : waiting)
      if (write(own_[static_cast<std::size_t>(id)], line.data(), line.size()) > 0)
        steps_[static_cast<std::size_t>(id)] = -1;
    return;
  }
  std::stable_sort(waiting.begin(), waiting.end(), [&](int a, int b) {
    return steps_[static_cast<std::size_t>(a)] > steps_[static_cast<std::size_t>(b)];
  });
  Host* const first = ranks_[static_cast<std::size_t>(waiting.front())].process->host;
  Group group{.ranks = {},
              .world_size = static_cast<int>(waiting.size()),
              .address = first->name,
              .port = 20'000 + ++groups_,
              .job = "group " + std::to_string(groups_),
              .seconds = kGroupSeconds};
  if (groups_ == 1 && schedule_.port_is_taken) {
    auto* const other = new Socket;  // of another program
    other->host = first;
    other->state = Socket::State::listening;
    other->backlog = 16;
    first->listeners.emplace(group.port, other);
  }
  std::map<Host*, int> of_host, next;
  for (const int id : waiting) ++of_host[ranks_[static_cast<std::size_t>(id)].process->host];
  for (int rank = 0; rank < group.world_size; ++rank) {
    const int id = waiting[static_cast<std::size_t>(rank)];
    Host* const host = ranks_[static_cast<std::size_t>(id)].process->host;
    group.ranks = {{.id = id, .rank = rank, .local_rank = next[host]++, .local_world_size = of_host[host]}};
    const std::string line = to_line(kind::kGroup, group) + "\n";
    steps_[static_cast<std::size_t>(id)] = -1;
    if (write(own_[static_cast<std::size_t>(id)], line.data(), line.size()) < 0) continue;
  }
  network()->note("a new group of " + std::to_string(group.world_size) + " ranks");
}

}  // namespace simulation
