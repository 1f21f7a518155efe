// Lists of ranks in messages.
#pragma once

#include <span>
#include <string>

namespace convoy::dist {

/// Returns "rank 2" or "ranks 0, 2, 3".
std::string format_ranks(std::span<const int> ranks);

}  // namespace convoy::dist
