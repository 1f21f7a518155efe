#include "tests/simulation/faults.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <string>

namespace simulation {
namespace {

using Kind = Fault::Kind;

constexpr double kLoaded = 20;                    // slowness of a host
constexpr int kFloods = 4;                        // clients of one flood
constexpr Time kMaxInCollective = kMillisecond;   // from its begin until a kill
constexpr Time kFloodPause = 120 * kMicrosecond;  // of a client, between two connections

void note_fault_of(World& world, const RankRecord& rank) {
  world.at_fault.emplace(&rank, world.scheduler.now());
}

void note_fault_of_host(World& world, int host) {
  world.hosts_at_fault.emplace(world.host(host), world.scheduler.now());
}

void stop(World& world, Process* process) {
  if (world.stops[process]++ == 0) process->stop();
}

void resume(World& world, Process* process) {
  if (--world.stops[process] == 0) process->resume();
}

// ---- Links

void change_links(World& world, const Fault& fault, bool begins) {
  Host* const host = world.host(fault.target);
  note_fault_of_host(world, fault.target);
  if (fault.kind == Kind::cut && begins) world.was_silenced_in_job = world.is_job_complete();
  if (fault.kind == Kind::cut && fault.duration == kNever) world.cut_hosts.insert(fault.target);
  if (fault.kind == Kind::slow) host->slowness = begins ? kLoaded : 1;
  for (const auto& other : world.network.hosts()) {
    if (other.get() == host) continue;
    Link& link = world.network.link(host, other.get());
    if (fault.kind == Kind::cut) world.network.cut(host, other.get(), begins);
    if (fault.kind == Kind::lose) link.loss = begins ? 0.01 : 0;
    if (fault.kind != Kind::slow) continue;
    link.latency = begins ? 5 * kMillisecond : 100 * kMicrosecond;
    link.bytes_per_second = begins ? 2e6 : 1e9;
  }
}

// ---- Floods

void connect_once(World& world, Host* target) {
  if (target->listeners.empty()) return world.scheduler.spend(kMillisecond);
  auto listener = target->listeners.begin();
  std::advance(listener, world.scheduler.random(target->listeners.size()));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(listener->first));
  address.sin_addr.s_addr = htonl(target->address);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    pollfd waiting{.fd = client, .events = POLLOUT, .revents = 0};
    poll(&waiting, 1, 10);
  }
  const std::string garbage(300, 'x');
  if (world.scheduler.random(2) == 0 && send(client, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0)
    world.scheduler.spend(kMicrosecond);
  close(client);
}

/// Starts clients that connect to the ports of a host, send some bytes or none, and close.
void flood(World& world, const Fault& fault) {
  note_fault_of_host(world, fault.target);
  Process* const stranger = world.network.add_process(world.network.add_host("stranger"), "stranger");
  --world.network.running;  // no process of the job
  stranger->set_environment(std::vector<std::string>());
  Host* const target = world.host(fault.target);
  const Time end = world.scheduler.now() + fault.duration;
  target->slowness = kLoaded;  // a machine that accepts connections more slowly than they come
  world.scheduler.at(end, [target] { target->slowness = 1; });
  for (int client = 0; client < kFloods; ++client)
    world.scheduler.start(stranger, [&world, target, end] {
      while (world.scheduler.now() < end) {
        connect_once(world, target);
        world.scheduler.spend(kFloodPause);
      }
    });
}

// ---- Processes

/// Stops all processes within some milliseconds, and lets them go on.
void suspend(World& world, const Fault& fault) {
  const bool is_in_job = world.is_job_complete();
  world.was_suspended_in_job &= is_in_job;
  for (int host = 0; !is_in_job && host < world.schedule.hosts; ++host) note_fault_of_host(world, host);
  for (const auto& process : world.network.processes()) {
    if (process->name == "stranger") continue;
    Process* const each = process.get();
    const auto later = static_cast<Time>(world.scheduler.random(3 * kMillisecond));
    world.scheduler.at(world.scheduler.now() + later, [&world, each] { stop(world, each); });
    world.scheduler.at(world.scheduler.now() + fault.duration + later, [&world, each] {
      world.last_fault = std::max(world.last_fault, world.scheduler.now());
      resume(world, each);
    });
  }
}

void kill(World& world, const Fault& fault, RankRecord& rank) {
  if (rank.process->has_ended) return;
  world.happened.insert(&fault);
  note_fault_of(world, rank);
  world.last_fault = std::max(world.last_fault, world.scheduler.now());
  rank.process->end(SIGKILL);
}

void thaw(World& world, Host* host) {
  --host->freezes;
  for (Process* const process : host->processes) resume(world, process);
}

void begin(World& world, const Fault& fault) {
  world.network.note("fault: " + describe(fault));
  RankRecord* const found =
      world.ranks.empty() ? nullptr : world.find_rank(world.ranks.back().attempt, fault.target);
  const bool is_of_rank = fault.kind == Kind::kill || fault.kind == Kind::stop || fault.kind == Kind::term;
  if (is_of_rank && (found == nullptr || found->process == nullptr || found->process->has_ended)) return;
  if (fault.kind != Kind::kill) world.happened.insert(&fault);
  world.last_fault = std::max(world.last_fault, world.scheduler.now());
  switch (fault.kind) {
    case Kind::kill:
      if (!fault.in_collective) {
        kill(world, fault, *found);
        break;
      }
      found->on_next_collective = [&world, &fault, found] {
        const auto later = static_cast<Time>(world.scheduler.random(kMaxInCollective));
        world.scheduler.at(world.scheduler.now() + later,
                           [&world, &fault, found] { kill(world, fault, *found); });
      };
      break;
    case Kind::stop:
      note_fault_of(world, *found);
      stop(world, found->process);
      break;
    case Kind::freeze:
      world.was_silenced_in_job = world.is_job_complete();
      note_fault_of_host(world, fault.target);
      ++world.host(fault.target)->freezes;
      for (Process* const process : world.host(fault.target)->processes) stop(world, process);
      break;
    case Kind::suspend: return suspend(world, fault);
    case Kind::term: found->process->stop_signal = SIGTERM; break;
    case Kind::cut:
    case Kind::slow:
    case Kind::lose: change_links(world, fault, true); break;
    case Kind::flood: flood(world, fault); break;
  }
  if (fault.duration == kNever || fault.kind == Kind::flood) return;
  world.scheduler.at(world.scheduler.now() + fault.duration, [&world, &fault, found] {
    world.network.note("end of fault: " + describe(fault));
    world.last_fault = std::max(world.last_fault, world.scheduler.now());
    if (fault.kind == Kind::stop)
      resume(world, found->process);
    else if (fault.kind == Kind::freeze)
      thaw(world, world.host(fault.target));
    else
      change_links(world, fault, false);
  });
}

}  // namespace

void schedule_faults(World& world) {
  for (const Fault& fault : world.schedule.faults)
    world.scheduler.at(fault.at, [&world, &fault] { begin(world, fault); });
}

}  // namespace simulation
