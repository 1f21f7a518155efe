// The checks of convoy-doctor: pure functions, one per topic, from the facts of all ranks to findings.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/cluster/doctor/facts.h"
#include "convoy/kernels/base/error.h"

namespace convoy::doctor {

/// warning: training works, but not well. error: training fails or gives wrong results.
enum class Grade { warning, error };

/// A problem, with what was expected and how to fix it.
struct Finding {
  Grade grade = Grade::warning;
  ExitCode code = ExitCode::peer;  // exit code of the program if this is an error
  std::string found, expected;
  std::string fix;  // commands to type or settings to change
};
using Findings = std::vector<Finding>;

/// Checks launchers, versions of programs and libraries, host names and clocks.
Findings check_launch(const Examination& examination);
/// Checks cores, threads, limits and memory.
Findings check_hosts(const Examination& examination);
/// Checks drivers, visible GPUs and their assignment to ranks.
Findings check_gpus(const Examination& examination);
/// Checks network interfaces and the links between hosts.
Findings check_network(const Examination& examination);
/// Checks the results of the test collectives.
Findings check_collectives(const Examination& examination);
/// Runs all checks above and returns their findings, errors first.
Findings check_all(const Examination& examination);

/// Checks the facts of one rank for reasons why its rendezvous failed.
Findings check_failed_rendezvous(const RankFacts& facts);

/// Returns the exit code of the first error, or ExitCode::ok if there is none.
ExitCode verdict(const Findings& findings);

// Helpers of the checks.

/// Returns the ranks of each host, indexed by node number.
std::vector<std::vector<const RankFacts*>> by_host(const std::vector<RankFacts>& ranks);
/// Returns a list such as "ranks 0, 1".
std::string rank_list(const std::vector<const RankFacts*>& ranks);
/// Returns the value of an environment variable of the rank, or "" if it is not set.
std::string environment_variable(const RankFacts& facts, const std::string& name);
/// Returns whether this is a loopback address or name.
bool is_loopback(const std::string& address);

}  // namespace convoy::doctor
