// Argument checks that throw formatted errors. Device sources cannot include this file, because it uses fmt.
// All functions are thread-safe.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// Throws an error of type E with a formatted message. Example:
///   fail<DataError>("{}: {} bytes, expected {}", path, found, expected);
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws UsageError with the formatted message if `condition` is false. For mistakes of the caller that are
/// found before any work is done. Formats the message only on failure.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail<UsageError>(text, std::forward<Args>(args)...);
}

}  // namespace convoy
