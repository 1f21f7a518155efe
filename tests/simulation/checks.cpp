#include "tests/simulation/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/simulation/verdict.h"

namespace simulation {
namespace {

using Kind = Fault::Kind;

constexpr double kSlack = 2;      // seconds beyond the limit of a wait
constexpr double kEndless = 120;  // seconds beyond it, after which a wait is taken for one without a limit

Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }
double seconds_of(Time time) { return 1e-9 * static_cast<double>(time); }

bool is_of_links(Kind kind) {
  return kind == Kind::cut || kind == Kind::slow || kind == Kind::lose || kind == Kind::flood;
}

std::string row_name(Wait row) { return std::string(convoy::dist::row_of(row).name); }

}  // namespace

Checks::Checks(World& world, Result& result) : world_(world), result_(result) {
  world_.on_end_of_wait = [this](const RankRecord& record, const Waiting& waiting) {
    check_wait(record, waiting);
  };
}

// ---- Waits

Time Checks::limit_of(const RankRecord& rank, const Waiting& waiting) const {
  const Schedule& schedule = world_.schedule;
  // No rank waits while it is stopped.
  Time begin = std::max(waiting.begin, rank.process->resumed_at);
  double seconds = waiting.seconds;
  switch (waiting.row) {
    case Wait::collective:  // without progress of any rank of the group
    case Wait::stop:
    case Wait::exit:
      // After its part a rank waits in the collective that ends the communicators, and its end in order follows.
      if (waiting.row == Wait::exit && rank.has_contributed) {
        if (rank.errors.empty())
          seconds += schedule.comm_timeout;
        else
          begin = std::max(begin, rank.errors.back().at);
      }
      begin = std::max(begin, world_.last_fault);
      for (const RankRecord& other : world_.ranks)
        if (other.group == rank.group) begin = std::max(begin, other.last_progress);
      // Wait::host: a host that answers no more.
      if (schedule.faults.size() == 1 && world_.was_silenced_in_job)
        seconds = std::min(seconds, schedule.host_timeout);
      break;
    case Wait::regroup:
      begin = std::max(begin, world_.last_fault);
      for (const RankRecord& other : world_.ranks) begin = std::max(begin, other.last_progress);
      seconds = 3 * world_.launcher->grace_seconds();
      break;
    default: begin = std::max(begin, world_.last_fault); break;
  }
  return begin + nanoseconds(seconds);
}

void Checks::check_wait(const RankRecord& rank, const Waiting& waiting) {
  const double late = seconds_of(world_.scheduler.now() - limit_of(rank, waiting));
  if (late > result_.latest) {
    result_.latest = late;
    result_.latest_row = row_name(waiting.row);
  }
  if (late > kSlack)
    violate("rank {} has waited in {} for {:.1f} s more than the limit, expected at most {} s more", rank.id,
            row_name(waiting.row), late, kSlack);
}

bool Checks::find_endless_waits() {
  bool is_endless = false;
  for (const RankRecord& rank : world_.ranks) {
    if (rank.process == nullptr || rank.process->has_ended || rank.process->is_stopped || rank.waits.empty())
      continue;
    const double late = seconds_of(world_.scheduler.now() - limit_of(rank, rank.waits.back()));
    if (late < kEndless) continue;
    violate("rank {} waits in {} without an end: {:.1f} s more than the limit", rank.id,
            row_name(rank.waits.back().row), late);
    is_endless = true;
  }
  if (world_.launcher && !are_all_stopped() && !world_.launcher->process()->has_ended &&
      !world_.launcher->process()->is_stopped) {
    Time last = std::max(world_.last_fault, world_.launcher->last_start());
    for (const RankRecord& rank : world_.ranks) {
      last = std::max(last, rank.last_progress);
      if (rank.process != nullptr && rank.process->has_ended) last = std::max(last, rank.process->ended_at);
    }
    // The limits of Wait::start, of Wait::grace (twice) and of Wait::host.
    const double limit =
        2 * world_.launcher->grace_seconds() + world_.schedule.comm_timeout + world_.schedule.host_timeout;
    if (world_.scheduler.now() > last + nanoseconds(limit + kEndless)) {
      violate("convoy-launch waits without an end");
      is_endless = true;
    }
  }
  return is_endless;
}

bool Checks::are_all_stopped() const {
  if (world_.launcher &&
      !world_.launcher->last_group().empty()) {  // of which convoy-launch kills those that end late
    const auto& group = world_.launcher->last_group();
    return std::all_of(group.begin(), group.end(), [](const auto& entry) {
      const Process* const process = entry.second->process;
      return process != nullptr && !process->has_ended && process->is_stopped;
    });
  }
  int running = 0, ended = 0;
  bool have_done_their_part = true;
  for (const RankRecord* const rank : world_.present()) {
    if (rank->process == nullptr) return false;
    if (rank->process->has_ended) {
      ++ended;
      have_done_their_part &= rank->exit_code == 0;
    } else {
      ++running;
      have_done_their_part &= rank->has_contributed;
      if (!rank->process->is_stopped) return false;
    }
  }
  return running > 0 && (ended == 0 || have_done_their_part);
}

bool Checks::is_over() const {
  Time last_end = 0;  // of a fault
  for (const Fault& fault : world_.schedule.faults)
    if (fault.duration != kNever) last_end = std::max(last_end, fault.at + fault.duration);
  if (world_.scheduler.now() > last_end + kSecond && are_all_stopped()) return true;
  bool has_all_ended = true;
  for (const auto& process : world_.network.processes()) {
    if (process->has_ended || process->name == "stranger") continue;
    has_all_ended = false;
    if (world_.scheduler.now() > last_end + kSecond && process->is_stopped) continue;
    // An agent that is cut off has no limit if it has no ranks.
    const auto& agents = world_.launcher ? world_.launcher->agents() : std::vector<Process*>();
    const auto host = std::find_if(world_.network.hosts().begin(), world_.network.hosts().end(),
                                   [&](const auto& each) { return each.get() == process->host; });
    const int index = static_cast<int>(host - world_.network.hosts().begin());
    const bool is_agent = std::find(agents.begin(), agents.end(), process.get()) != agents.end();
    const bool is_shell = process->record == nullptr && !is_agent;
    if (is_agent && world_.cut_hosts.contains(index)) continue;
    if (is_shell && world_.launcher && process.get() != world_.launcher->process()) continue;
    return false;
  }
  return has_all_ended || world_.scheduler.now() > last_end + kSecond;
}

// ---- The end

/// Returns whether the faults are ones with which all ranks go on: the job must succeed.
bool Checks::must_succeed() const {
  const Schedule& schedule = world_.schedule;
  const double limit = 0.25 * std::min(schedule.comm_timeout, schedule.host_timeout);
  double sum = 0;
  for (const Fault& fault : schedule.faults) {
    if (!world_.happened.contains(&fault)) continue;
    if (fault.kind == Kind::kill) return false;
    if (fault.kind == Kind::suspend && (schedule.faults.size() > 1 || !world_.was_suspended_in_job))
      return false;
    if (fault.kind == Kind::suspend || fault.kind == Kind::term) continue;
    if (fault.duration == kNever) return false;
    if (fault.kind == Kind::stop || fault.kind == Kind::freeze || fault.kind == Kind::cut)
      sum += seconds_of(fault.duration);
    // A flood leaves few connections to the ranks; several slow things add up.
    if (schedule.faults.size() > 1) sum += limit / 2;
  }
  return sum <= limit;
}

bool Checks::must_complete() const {
  const Schedule& schedule = world_.schedule;
  // Ranks that a signal has stopped start again, which is a restart.
  const bool is_stop = std::any_of(world_.happened.begin(), world_.happened.end(),
                                   [](const Fault* fault) { return fault->kind == Kind::term; });
  if (must_succeed() && !is_stop) return true;
  if (schedule.faults.size() != 1 || schedule.max_restarts < 2) return false;
  const Kind kind = schedule.faults.front().kind;
  return kind == Kind::kill || kind == Kind::stop || kind == Kind::term;
}

void Checks::check_end() {
  std::map<std::string, std::set<std::int64_t>> stop_steps;  // by group
  for (const RankRecord& rank : world_.ranks) {
    if (!rank.wrong.empty()) violate("rank {}: {}", rank.id, rank.wrong);
    if (rank.exit_code >= 0) ++(rank.exit_code == 0 ? result_.successes : result_.failures);
    result_.has_regrouped |= rank.has_regrouped;
    result_.has_restarted |= rank.attempt > 0;
    if (rank.exit_code == 0 || rank.exit_code == kStopped) {
      stop_steps[rank.group].insert(rank.stop_step);
      check_completion(rank);
    }
    check_errors(rank);
  }
  for (const auto& [group, steps] : stop_steps)
    if (steps.size() > 1) violate("the ranks stop at {} different steps after a signal", steps.size());
  if (world_.launcher) check_launcher();
  check_remains();
}

void Checks::check_errors(const RankRecord& rank) {
  if (must_succeed() && !rank.errors.empty())
    violate("rank {} fails without need: {}", rank.id, rank.errors.front().text);
  const bool has_stopped = rank.exit_code == kStopped && rank.stop_step >= 0;
  if (rank.exit_code > 0 && rank.exit_code != 4 && !has_stopped)
    violate("rank {} ends with {}, expected 4: {}", rank.id, rank.exit_code,
            rank.errors.empty() ? "" : rank.errors.back().text);
  if (!must_succeed())
    for (const Error& error : rank.errors) check_culprits(rank, error);
}

void Checks::check_culprits(const RankRecord& rank, const Error& error) {
  if (error.text == "there is no new group") return;  // convoy-launch says why
  if (world_.launcher && world_.launcher->has_given_up(rank.attempt, error.at)) return;
  // A rank that was stopped may find that the others have left because of it.
  const bool was_stopped = rank.process->resumed_at > 0;
  if (was_stopped && (world_.at_fault.contains(&rank) || world_.hosts_at_fault.contains(rank.host))) return;
  const std::string& text = error.verdict.empty() ? error.text : error.verdict;
  const auto culprits = culprits_in(text);
  // After a cut that is shorter than the time in which a host must answer, all ranks are there, and what the cut lost is not.
  const bool is_link = text.find("the connections between them do not deliver it") != std::string::npos &&
                       std::any_of(world_.happened.begin(), world_.happened.end(), [&](const Fault* fault) {
                         return fault->kind == Kind::cut &&
                                fault->duration < nanoseconds(world_.schedule.host_timeout) &&
                                error.at > fault->at + fault->duration;
                       });
  if (is_link) return;
  if (!culprits || culprits->empty())
    return violate("rank {} names no rank: {} [verdict: {}]", rank.id, error.text, error.verdict);
  for (const int number : *culprits) {
    const RankRecord* const blamed = find_member(rank, error.group, number);
    if (blamed == nullptr)
      violate("rank {} blames rank {}, which does not exist: {}", rank.id, number, text);
    else if (!may_blame(rank, *blamed, error.at))
      violate("rank {} blames rank {}, which was not at fault: {} [verdict: {}]", rank.id, number, error.text,
              error.verdict);
  }
}

bool Checks::may_blame(const RankRecord& observer, const RankRecord& blamed, Time at) const {
  const auto rank = world_.at_fault.find(&blamed);
  if (rank != world_.at_fault.end() && rank->second <= at) return true;
  const auto host = world_.hosts_at_fault.find(blamed.host);
  if (host != world_.hosts_at_fault.end() && host->second <= at) return true;
  // To a host whose links are at fault, the others seem to be.
  for (const Fault& fault : world_.schedule.faults)
    if (is_of_links(fault.kind) && world_.happened.contains(&fault) &&
        world_.host(fault.target) == observer.host && blamed.host != observer.host)
      return true;
  return false;
}

const RankRecord* Checks::find_member(const RankRecord& rank, const std::string& group, int number) const {
  if (!world_.launcher) return world_.find_rank(0, number);
  const auto& members = world_.launcher->group(group.empty() ? rank.group : group);
  const auto found = members.find(number);
  return found == members.end() ? nullptr : found->second;
}

void Checks::check_completion(const RankRecord& rank) {
  int members = 0;
  for (const RankRecord& other : world_.ranks) {
    if (other.group != rank.group) continue;
    ++members;
    if (!other.has_contributed)
      violate("rank {} ends with success, although rank {} of its group has not finished", rank.id, other.id);
  }
  if (members != rank.group_size)
    violate("rank {} ends with success in a group of {} ranks, expected {}", rank.id, members,
            rank.group_size);
  if (rank.exit_code == 0 && rank.step != world_.schedule.steps)
    violate("rank {} ends with success after {} steps, expected {}", rank.id, rank.step,
            world_.schedule.steps);
}

void Checks::check_launcher() {
  Launcher& launcher = *world_.launcher;
  if (!launcher.process()->has_ended) return;
  if (launcher.exit_code() != 0) return check_failure_of_launcher();
  check_budget();
  if (launcher.last_group().empty()) violate("convoy-launch ends with success, although no rank has started");
  for (const auto& [number, rank] : launcher.last_group())
    if (rank->exit_code != 0)
      violate("convoy-launch ends with success, although rank {} of the last group has ended with {}", number,
              rank->exit_code);
}

void Checks::check_failure_of_launcher() {
  const Launcher& launcher = *world_.launcher;
  const std::vector<std::string> lines = launcher.lines();
  const std::string reason = lines.empty() ? "" : lines.back();
  if (must_complete()) violate("convoy-launch fails without need: {}", reason);
  check_budget();
  std::set<int> codes = {4};  // those of the failures that the faults may cause
  for (const Fault* const fault : world_.happened) {
    if (fault->kind == Kind::kill || fault->kind == Kind::stop || fault->kind == Kind::freeze)
      codes.insert(128 + SIGKILL);  // a rank that is stopped is killed in the end
    if (fault->kind == Kind::term) codes.insert(kStopped);
  }
  if (!codes.contains(launcher.exit_code()))
    violate("convoy-launch ends with {}, expected {}: {}", launcher.exit_code(), fmt::join(codes, ", "),
            reason);
  const auto is_named = [&](const Host* host) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(host->name) != std::string::npos; });
  };
  const bool names_culprit = std::any_of(world_.at_fault.begin(), world_.at_fault.end(),
                                         [&](const auto& entry) { return is_named(entry.first->host); }) ||
                             std::any_of(world_.hosts_at_fault.begin(), world_.hosts_at_fault.end(),
                                         [&](const auto& entry) { return is_named(entry.first); });
  // The error of a rank that has lost a peer says more.
  const bool is_consequence = reason.find("has exited with code 4") != std::string::npos;
  const bool has_stopped = launcher.exit_code() == kStopped;
  if (!names_culprit && !is_consequence && !has_stopped)
    violate("convoy-launch names none of those at fault: {}", reason);
}

void Checks::check_budget() {
  const Launcher& launcher = *world_.launcher;
  const int maximum = world_.schedule.max_restarts;
  int again = 0;  // begins since the newest checkpoint, without the first one
  const std::vector<Launcher::Begin>& begins = launcher.begins();
  for (std::size_t i = 1; i < begins.size(); ++i) {
    if (begins[i].is_growth) continue;
    again = begins[i].checkpoint > begins[i - 1].checkpoint ? 1 : again + 1;
    if (again > maximum)
      violate("the ranks begin for the {}th time since the newest checkpoint, expected at most {}", again + 1,
              maximum + 1);
  }
  if (launcher.exit_code() == 0) return;
  const std::vector<std::string> lines = launcher.lines();
  const std::string reason = lines.empty() ? "" : lines.back();
  const auto has_gone_on = [](const std::string& line) {
    return line.find("; restart ") != std::string::npos || line.ends_with(" on");
  };
  const auto tries = std::count_if(lines.begin(), lines.end(), has_gone_on);
  const bool lacks_ranks = reason.find("; fewer than ") != std::string::npos ||
                           reason.find("; the job ends after ") != std::string::npos;
  if (tries < maximum && !lacks_ranks)
    violate("convoy-launch gives up after {} of {} restarts: {}", tries, maximum, reason);
}

void Checks::check_remains() {
  const bool have_all_ended =
      std::all_of(world_.network.processes().begin(), world_.network.processes().end(),
                  [](const auto& process) { return process->has_ended || process->name == "stranger"; });
  if (have_all_ended && !world_.network.memories.empty())
    violate("{} shared segments are left", world_.network.memories.size());
}

}  // namespace simulation
