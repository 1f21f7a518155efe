// The identity with which a rank joins a store.
#pragma once

#include <string>

namespace convoy::dist {

struct StoreMember {
  int rank = 0;
  int world_size = 1;
  /// The name of the job, equal on all ranks; empty if it has none.
  std::string job;
};

/// Returns a random string of 128 bits, which is unique across processes and calls and cannot be guessed.
std::string random_token();

}  // namespace convoy::dist
