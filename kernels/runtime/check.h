// Checks at the boundary: say what was found and what was expected. Not for device sources (fmt).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kernels/runtime/error.h"

namespace convoy {

/// Throws an error of type E with a formatted message: fail<DataError>("{}: {} bytes, expected {}", …).
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

/// The common case: a caller's mistake, found before any work is done. Formats only on failure.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail<UsageError>(text, std::forward<Args>(args)...);
}

}  // namespace convoy
