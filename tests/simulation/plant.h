// The faults that can be planted (plants/*.patch), to show that they are found.
#pragma once

#include <string>

namespace simulation {

/// The name of the fault that is planted; empty: none.
inline std::string g_planted;

/// Returns whether this fault is planted.
inline bool is_planted(const char* name) { return g_planted == name; }

}  // namespace simulation
