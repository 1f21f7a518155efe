// fault_schedules: runs the jobs of many seeds, each in a process of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/simulation/plant.h"
#include "tests/simulation/simulation.h"

namespace {

using simulation::Result;
using simulation::Schedule;

constexpr const char* kHelp =
    "Usage: fault_schedules [OPTION]…\n"
    "Runs jobs in virtual time, with faults that a seed chooses, and checks that they end as they must.\n\n"
    "  --seeds N     Number of seeds (100)\n"
    "  --first S     The first seed (1)\n"
    "  --ranks LIST  Numbers of ranks; a job has one of them, the more often the smaller it is (2,8,64)\n"
    "  --seed S      This seed alone, with a trace of its events; with the --ranks that the failure shows\n"
    "  --quiet       No trace\n"
    "  --jobs N      Seeds at a time (number of cores)\n"
    "  --limit N     Stop after N failing seeds (20)\n"
    "  --plant NAME  Plant a fault: the seeds should find it (fault_schedules_planted). Each seed that fails is run\n"
    "                again without it\n"
    "  --find REGEX  With --plant: stop at the first seed that fails with a text that the expression matches, and\n"
    "                passes without the fault. Fails if there is none\n"
    "  --growth N    Counts the messages of jobs of N and 2 N ranks without faults: fails if 2 N ranks send more than\n"
    "                2.2 times as many, as they do if each pair of ranks exchanges one\n";

struct Options {
  std::uint64_t seeds = 100, first = 1, jobs = std::max(std::thread::hardware_concurrency(), 1U), limit = 20;
  bool is_replay = false, is_quiet = false;
  int growth = 0;
  std::vector<int> ranks = {2, 8, 64};
  std::string plant, find;
};

[[noreturn]] void refuse(const std::string& text) {
  fmt::print(stderr, "fault_schedules: error: {}; see --help\n", text);
  std::exit(2);
}

std::uint64_t number_of(const std::string& option, const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos || text.size() > 18)
    refuse(fmt::format("{}: found '{}', expected a number", option, text));
  return std::stoull(text);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") {
      fmt::print("{}", kHelp);
      std::exit(0);
    }
    if (option == "--quiet") {
      options.is_quiet = true;
      continue;
    }
    if (i + 1 == argc) refuse(fmt::format("{}: found no value, or no such option", option));
    const std::string value = argv[++i];
    if (option == "--ranks") {
      options.ranks.clear();
      std::istringstream list(value);
      for (std::string ranks; std::getline(list, ranks, ',');) {
        options.ranks.push_back(static_cast<int>(number_of(option, ranks)));
        if (options.ranks.back() < 2 || options.ranks.back() > 1024)
          refuse(fmt::format("--ranks: found {}, expected 2 to 1024", ranks));
      }
      if (options.ranks.empty()) refuse("--ranks: found no number");
    } else if (option == "--seeds") {
      options.seeds = number_of(option, value);
    } else if (option == "--first") {
      options.first = number_of(option, value);
    } else if (option == "--jobs") {
      options.jobs = std::max<std::uint64_t>(number_of(option, value), 1);
    } else if (option == "--limit") {
      options.limit = number_of(option, value);
    } else if (option == "--seed") {
      options.first = number_of(option, value);
      options.seeds = 1;
      options.is_replay = true;
    } else if (option == "--plant") {
      options.plant = value;
    } else if (option == "--growth") {
      options.growth = static_cast<int>(std::clamp<std::uint64_t>(number_of(option, value), 2, 512));
    } else if (option == "--find") {
      options.find = value;
    } else {
      refuse(fmt::format("found {}, which is no option", option));
    }
  }
  if (!options.find.empty() && options.plant.empty()) refuse("--find: found no --plant, expected one");
  return options;
}

/// Chooses a number of ranks: each with a probability inversely proportional to it.
int ranks_of(std::uint64_t seed, const std::vector<int>& choices) {
  double sum = 0;
  for (const int ranks : choices) sum += 1.0 / ranks;
  std::mt19937_64 random(seed);
  double at = sum * static_cast<double>(random() >> 11) * 0x1p-53;
  for (const int ranks : choices)
    if ((at -= 1.0 / ranks) < 0) return ranks;
  return choices.back();
}

/// What the process of a seed has written, and how it has ended.
struct Answer {
  bool has_passed = false;
  std::string text;
};

/// A process that simulates the job of a seed.
struct Child {
  pid_t process = 0;
  int pipe = -1;
  Schedule schedule;
};

/// Starts a process that simulates a job, with the fault of this name planted; empty: none.
Child start(const Schedule& schedule, bool traces, const std::string& plant) {
  int ends[2];
  if (pipe(ends) != 0) refuse(fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0) refuse(fmt::format("fork: {}", std::strerror(errno)));
  if (process > 0) {
    close(ends[1]);
    return {process, ends[0], schedule};
  }
  close(ends[0]);
  simulation::g_planted = plant;
  // A simulation that makes no progress in virtual time must end, too, by SIGXCPU.
  const auto seconds = static_cast<rlim_t>(10 + schedule.ranks);
  const rlimit limit{.rlim_cur = seconds, .rlim_max = 2 * seconds};
  if (setrlimit(RLIMIT_CPU, &limit) != 0) _exit(1);
  if (!traces)
    if (const int null = open("/dev/null", O_WRONLY); null >= 0) dup2(null, STDERR_FILENO);
  const Result result = simulation::simulate(schedule, traces);
  std::string text;
  for (const std::string& violation : result.violations) text += "  " + violation + "\n";
  if (text.empty())
    text = fmt::format("passed {:.2f} {} {} {} {} {} {} {} {:.2f} {}", 1e-9 * static_cast<double>(result.end),
                       result.messages, result.connections, result.events, result.successes, result.failures,
                       result.has_regrouped ? 1 : 0, result.has_restarted ? 1 : 0, result.latest,
                       result.latest_row);
  if (write(ends[1], text.data(), std::min<std::size_t>(text.size(), 60'000)) < 0) _exit(1);
  _exit(0);
}

Answer wait_for(const Child& child) {
  Answer answer;
  char block[4096];
  for (ssize_t count = 0; (count = read(child.pipe, block, sizeof block)) > 0;)
    answer.text.append(block, static_cast<std::size_t>(count));
  close(child.pipe);
  int status = 0;
  waitpid(child.process, &status, 0);
  answer.has_passed = answer.text.starts_with("passed");
  if (WIFSIGNALED(status))
    answer.text += fmt::format("  the simulation is ended by signal {}{}\n", WTERMSIG(status),
                               WTERMSIG(status) == SIGXCPU ? ": it does not end" : "");
  return answer;
}

/// Returns whether the messages of a job grow about as the number of ranks, with each backend.
bool grows_linearly(int ranks) {
  bool is_linear = true;
  for (const char* const comm : {"auto", "tcp"}) {
    double before = 0;
    for (const int n : {ranks, 2 * ranks}) {
      const Schedule schedule{.ranks = n, .hosts = std::max(n / 4, 1), .comm_timeout = 60, .comm = comm};
      const Answer answer = wait_for(start(schedule, false, ""));
      double seconds = 0, messages = 0, connections = 0;
      std::istringstream(answer.text.substr(std::min<std::size_t>(6, answer.text.size()))) >> seconds >>
          messages >> connections;
      const bool is_small = answer.has_passed && (before == 0 || messages < 2.2 * before);
      is_linear = is_linear && is_small;
      fmt::print(
          "{} ranks, --comm {}: {:.0f} messages and {:.1f} connections a rank in {:.2f} s of virtual time{}\n",
          n, comm, messages / n, connections / n, seconds,
          !answer.has_passed ? "; it fails:\n" + answer.text
          : is_small         ? ""
                             : fmt::format("; {:.2f} times as many as half the ranks", messages / before));
      before = messages;
    }
  }
  return is_linear;
}

}  // namespace

int main(int argc, char** argv) {
  // One thread for each library that computes: a forked process has no other ones.
  if (std::getenv("OPENBLAS_NUM_THREADS") == nullptr) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("LD_BIND_NOW", "1", 1);  // once, not in each process
    setenv("CONVOY_EMULATED_GPUS", "0", 1);
    execv("/proc/self/exe", argv);
  }
  const Options options = parse(argc, argv);
  if (options.growth > 0) return grows_linearly(options.growth) ? 0 : 1;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Child> children;
  std::uint64_t next = options.first, failed = 0, run = 0, events = 0;
  double virtual_seconds = 0, latest = -1e9;
  std::string latest_row;
  std::uint64_t latest_seed = 0;
  bool is_found = false;
  std::uint64_t successes = 0, failures = 0, regrouped = 0, restarted = 0;
  const std::uint64_t end = options.first + options.seeds;
  const auto goes_on = [&] { return next < end && failed < options.limit && !is_found; };
  while (goes_on() || !children.empty()) {
    while (goes_on() && children.size() < options.jobs) {
      const Schedule schedule = simulation::make_schedule(next, ranks_of(next, options.ranks));
      if (options.is_replay) fmt::print("seed {}: {}\n", next, simulation::describe(schedule));
      children.push_back(start(schedule, options.is_replay && !options.is_quiet, options.plant));
      ++next;
    }
    const Child child = children.front();
    children.erase(children.begin());
    const Answer answer = wait_for(child);
    ++run;
    if (answer.has_passed) {
      double seconds = 0, late = 0;
      std::string row;
      std::uint64_t of_events = 0, of_successes = 0, of_failures = 0, of_regrouped = 0, of_restarted = 0;
      std::uint64_t messages = 0, connections = 0;
      std::istringstream(answer.text.substr(6)) >> seconds >> messages >> connections >> of_events >>
          of_successes >> of_failures >> of_regrouped >> of_restarted >> late >> row;
      if (late > latest) {
        latest = late;
        latest_row = row;
        latest_seed = child.schedule.seed;
      }
      virtual_seconds += seconds;
      events += of_events;
      successes += of_successes;
      failures += of_failures;
      regrouped += of_regrouped;
      restarted += of_restarted;
      continue;
    }
    ++failed;
    fmt::print("seed {} fails: {}\n{}  replay: scripts/fault_schedules --seed {} --ranks {}{}\n",
               child.schedule.seed, simulation::describe(child.schedule), answer.text, child.schedule.seed,
               child.schedule.ranks, options.plant.empty() ? "" : " --plant " + options.plant);
    if (!options.plant.empty()) {
      const bool passes = wait_for(start(child.schedule, false, "")).has_passed;
      fmt::print("  without {}: {}\n", options.plant, passes ? "passes" : "fails, too");
      is_found |= passes && !options.find.empty() && std::regex_search(answer.text, std::regex(options.find));
    }
    std::fflush(stdout);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print(
      "{} seeds, {} failed; {:.0f} s of virtual time and {} events in {:.1f} s; {} ranks ended with success, {} with an "
      "error; {} jobs had a new group, {} a restart; the latest end of a wait was {:.1f} s after its limit ({}, seed {})\n",
      run, failed, virtual_seconds, events, elapsed.count(), successes, failures, regrouped, restarted,
      latest, latest_row, latest_seed);
  if (!options.find.empty()) return is_found ? 0 : 1;
  return failed == 0 ? 0 : 1;
}
