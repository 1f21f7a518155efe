// From what all ranks tell of themselves to what is wrong: pure functions, one for each topic.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor_facts.h"
#include "kernels/runtime/error.h"

namespace convoy::doctor {

enum class Grade { warning, error };  // it works, but not well; it does not work, or not right

struct Finding {
  Grade grade = Grade::warning;
  ExitCode code = ExitCode::peer;  // of the program, for an error
  std::string found, expected;
  std::string fix;  // what to type or to change
};
using Findings = std::vector<Finding>;

/// Who started the ranks, which programs and libraries they are, and what their hosts call themselves.
Findings check_launch(const Examination& examination);
/// Cores, threads, limits, memory.
Findings check_hosts(const Examination& examination);
Findings check_gpus(const Examination& examination);
/// Interfaces, and ways between hosts.
Findings check_network(const Examination& examination);
Findings check_collectives(const Examination& examination);
/// All of them, errors first.
Findings check_all(const Examination& examination);

/// What a rank alone can say of why the others did not come, or it did not come to them.
Findings check_lonely(const RankFacts& facts);

/// Of the first error; ok where there is none.
ExitCode verdict(const Findings& findings);

// What the checks share.

/// Ranks by host, in the order of hosts.
std::vector<std::vector<const RankFacts*>> by_host(const std::vector<RankFacts>& ranks);
/// "ranks 0, 1".
std::string names_of(const std::vector<const RankFacts*>& ranks);
/// A variable of the rank's; "" where it is not set.
std::string variable_of(const RankFacts& facts, const std::string& name);
/// Whether this is an address, or name, by which every host means itself.
bool is_loopback(const std::string& address);

}  // namespace convoy::doctor
