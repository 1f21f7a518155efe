#include "convoy/comm/cluster/store/store_member.h"

#include <fmt/format.h>

namespace convoy::dist {

bool may_set(int rank, const std::string& key) {
  return key == kFailureKey || key.ends_with(fmt::format("/{}", rank));
}

}  // namespace convoy::dist
