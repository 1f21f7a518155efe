// Ranks in messages.
#pragma once

#include <span>
#include <string>

namespace convoy {

/// "rank 2", "ranks 0, 2, 3".
std::string text_of_ranks(std::span<const int> ranks);

}  // namespace convoy
