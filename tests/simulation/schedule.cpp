#include "tests/simulation/schedule.h"

#include <fmt/format.h>

#include <array>
#include <random>

namespace simulation {
namespace {

constexpr std::array kNames = {"kill", "stop", "freeze", "suspend", "cut", "slow", "lose", "flood", "term"};

double seconds(Time time) { return 1e-9 * static_cast<double>(time); }

}  // namespace

Schedule make_schedule(std::uint64_t seed, int ranks) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + 1);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  const auto chance = [&](int percent) { return below(100) < static_cast<std::uint64_t>(percent); };
  const auto one_of = [&](auto... values) {
    const std::array list = {values...};
    return list[below(list.size())];
  };
  // The start takes some ten milliseconds, and the whole job about a second.
  const auto moment = [&] {
    return static_cast<Time>(below(chance(35) ? 60 : 1000) * kMillisecond + below(kMillisecond));
  };
  Schedule schedule{.seed = seed, .ranks = ranks};
  const int max_hosts = ranks < 4 ? ranks : ranks < 16 ? 4 : 8;
  schedule.hosts = 1 + static_cast<int>(below(static_cast<std::uint64_t>(max_hosts)));
  schedule.comm_timeout = one_of(4.0, 6.0, 10.0, 30.0);
  schedule.host_timeout = one_of(2.0, 3.0, 5.0);
  schedule.io_timeout = one_of(0.0, 20.0);
  schedule.comm = chance(30) ? "tcp" : "auto";
  schedule.has_secret = chance(80);
  schedule.is_launched = chance(45);
  schedule.may_regroup = chance(75) && schedule.is_launched;
  schedule.port_is_taken = chance(40);
  schedule.steps = 3 + static_cast<int>(below(8));
  const std::size_t faults = chance(8) ? 0 : chance(60) ? 1 : 2 + below(2);
  for (std::size_t i = 0; i < faults; ++i) {
    using Kind = Fault::Kind;
    Fault& fault = schedule.faults.emplace_back();
    do
      fault.kind = one_of(Kind::kill, Kind::kill, Kind::kill, Kind::stop, Kind::stop, Kind::stop,
                          Kind::freeze, Kind::suspend, Kind::suspend, Kind::cut, Kind::cut, Kind::slow,
                          Kind::lose, Kind::flood, Kind::flood, Kind::term);
    while (schedule.hosts == 1 &&
           (fault.kind == Kind::cut || fault.kind == Kind::lose || fault.kind == Kind::freeze));
    fault.at = moment();
    const bool is_of_rank = fault.kind == Kind::kill || fault.kind == Kind::stop || fault.kind == Kind::term;
    fault.target = static_cast<int>(below(static_cast<std::uint64_t>(is_of_rank ? ranks : schedule.hosts)));
    switch (fault.kind) {
      case Kind::kill:
      case Kind::term: break;
      case Kind::stop:
      case Kind::freeze:
      case Kind::cut:
        if (chance(35)) fault.duration = static_cast<Time>(below(1000)) * kMillisecond;
        break;
      case Kind::suspend: fault.duration = static_cast<Time>(2 + below(60)) * kSecond; break;
      case Kind::slow:
      case Kind::lose: fault.duration = static_cast<Time>(1 + below(2000)) * kMillisecond; break;
      case Kind::flood: fault.duration = static_cast<Time>(1 + below(10)) * kSecond; break;
    }
  }
  for (Fault& fault : schedule.faults) fault.in_collective = fault.kind == Fault::Kind::kill && chance(30);
  schedule.max_restarts = schedule.may_regroup ? 1 + static_cast<int>(below(3)) : static_cast<int>(below(3));
  schedule.min_ranks = one_of(1, 1, ranks / 2, ranks - 1);
  schedule.spares = schedule.max_restarts > 0 && chance(25) ? 1 : 0;
  if (chance(50)) schedule.host_cooldown = 1;
  if (schedule.may_regroup && ranks <= 8 && chance(25)) schedule.steps += 60;  // a host may come back
  for (Fault& fault : schedule.faults)
    if ((fault.kind == Fault::Kind::freeze || fault.kind == Fault::Kind::cut) && fault.duration == kNever &&
        chance(40))
      fault.duration = static_cast<Time>(3 + below(15)) * kSecond;
  // Without a draw, so that a seed keeps its faults.
  if (ranks >= 64 && seed % 4 == 1) schedule.hosts *= 4;
  if (schedule.hosts > 1 || schedule.comm == "tcp")
    schedule.all_reduce = std::array{"auto", "auto", "ring", "halving-doubling", "tree"}[seed / 7 % 5];
  return schedule;
}

std::string describe(const Fault& fault) {
  using Kind = Fault::Kind;
  const bool is_of_rank = fault.kind == Kind::kill || fault.kind == Kind::stop || fault.kind == Kind::term;
  std::string text =
      fmt::format("{:.4f} s: {}", seconds(fault.at), kNames.at(static_cast<std::size_t>(fault.kind)));
  if (fault.kind != Kind::suspend) text += fmt::format(" {} {}", is_of_rank ? "rank" : "host", fault.target);
  if (fault.in_collective) text += " in its next collective";
  if (fault.duration != kNever) text += fmt::format(" for {:.3f} s", seconds(fault.duration));
  return text;
}

std::string describe(const Schedule& schedule) {
  std::string text = fmt::format(
      "{} ranks on {} hosts, --comm {}, --allreduce {}, --comm-timeout {}, host timeout {}, --io-timeout {}, {} steps{}{}",
      schedule.ranks, schedule.hosts, schedule.comm, schedule.all_reduce, schedule.comm_timeout,
      schedule.host_timeout, schedule.io_timeout, schedule.steps, schedule.has_secret ? "" : ", no secret",
      schedule.is_launched ? fmt::format(", convoy-launch --max-restarts {}", schedule.max_restarts) : "");
  if (schedule.is_launched && schedule.may_regroup)
    text += fmt::format(" --min-ranks {} --host-cooldown {}{}", schedule.min_ranks, schedule.host_cooldown,
                        schedule.port_is_taken ? ", port taken" : "");
  if (schedule.is_launched && schedule.spares > 0) text += ", a spare host";
  for (const Fault& fault : schedule.faults) text += "; " + describe(fault);
  return text;
}

}  // namespace simulation
