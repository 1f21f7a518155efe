#include "convoy/comm/bootstrap/store/store_member.h"

#include <fmt/format.h>

#include <random>

namespace convoy::dist {

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace convoy::dist
