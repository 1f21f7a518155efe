// What the doctor found, for people and for programs.
#pragma once

#include <string>

#include "apps/doctor_checks.h"
#include "apps/doctor_facts.h"

namespace convoy::doctor {

/// Hosts, each with its ranks, and what is the same on all.
std::string text_of_facts(const Examination& examination);

/// "rank 2 on node7, shm: all-gather [0 1 2 3]".
std::string text_of_gather(const CollectiveFacts& facts);

/// Ways between hosts, and what all-reduces took.
std::string text_of_exchanges(const Examination& examination);

/// Numbered, each with what was expected and the fix; or that nothing was found.
std::string text_of_findings(const Findings& findings);

/// All of it, with the number of its schema.
std::string json_of(const Examination& examination, const Findings& findings);

}  // namespace convoy::doctor
