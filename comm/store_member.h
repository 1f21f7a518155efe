// Who comes to a store.
#pragma once

#include <string>

namespace convoy {

struct StoreMember {
  int rank = 0;
  int world = 1;
  std::string job;  // all ranks say the same; "" where nobody has a name for it
};

/// A text that no other process, and no other call, comes up with.
std::string random_token();

}  // namespace convoy
