// The identity with which a rank joins a store.
#pragma once

#include <string>

namespace convoy::dist {

/// The key of the reason with which the first rank fails.
constexpr const char* kFailureKey = "failure";

struct StoreMember {
  int rank = 0;
  int world_size = 1;
  /// The name of the job, equal on all ranks; empty if it has none.
  std::string job;
};

/// Returns whether the rank may set the key. A key that ends with "/" and a rank belongs to that rank. All
/// ranks may set kFailureKey.
bool may_set(int rank, const std::string& key);

}  // namespace convoy::dist
