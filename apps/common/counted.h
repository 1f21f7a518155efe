// Numbers of things, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convoy/kernels/base/check.h"

namespace convoy {

/// Returns "1 thread" or "2 threads". `plural` is for nouns that take more than an s.
inline std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {}) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace convoy
