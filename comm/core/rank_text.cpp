#include "convoy/comm/core/rank_text.h"

#include <fmt/ranges.h>

namespace convoy::dist {

std::string format_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace convoy::dist
