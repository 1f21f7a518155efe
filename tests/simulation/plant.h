// The faults of earlier versions of Convoy that can be planted again (plants/*.patch), to show that they are found.
#pragma once

#include <cstdlib>
#include <cstring>

namespace simulation {

/// Returns whether this fault is planted: CONVOY_PLANT is its name.
inline bool is_planted(const char* name) {
  static const char* const planted =
      std::getenv("CONVOY_PLANT");  // at the first call, of no simulated process
  return planted != nullptr && std::strcmp(planted, name) == 0;
}

}  // namespace simulation
