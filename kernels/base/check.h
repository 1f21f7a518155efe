// Argument checks that throw formatted errors. Device sources cannot include this file, because it uses fmt.
// All functions are thread-safe.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// Throws an error of type E with a formatted message. Example:
///   fail<DataError>("{}: {} bytes, expected {}", path, found, expected);
template <class E, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw E(fmt::format(text, std::forward<Args>(args)...));
}

/// Returns whether a system call that failed with `error`, an errno, may succeed later: what has failed is the device, the
/// file server, the connection to it, or memory of the kernel, and not the file.
inline bool is_transient(int error) {
  constexpr int kTransient[] = {EIO,          EREMOTEIO, ESTALE,       ETIMEDOUT, EINTR,       EAGAIN,
                                ENOMEM,       ENFILE,    ENOTCONN,     ESHUTDOWN, ECONNRESET,  ECONNABORTED,
                                ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, ENETDOWN,  ENETUNREACH, ENETRESET};
  return std::find(std::begin(kTransient), std::end(kTransient), error) != std::end(kTransient);
}

/// Throws an error of type E for a file that cannot be read, with the formatted message and the text of `error`, an errno;
/// StorageError if is_transient(error). Example:
///   fail_read<DataError>(errno, "{}: cannot be opened", path);
template <class E, class... Args>
[[noreturn]] void fail_read(int error, fmt::format_string<Args...> text, Args&&... args) {
  const std::string what =
      fmt::format("{}: {}", fmt::format(text, std::forward<Args>(args)...), std::strerror(error));
  if (is_transient(error)) throw StorageError(what);
  throw E(what);
}

/// Throws UsageError with the formatted message if `condition` is false. For mistakes of the caller that are
/// found before any work is done. Formats the message only on failure.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail<UsageError>(text, std::forward<Args>(args)...);
}

}  // namespace convoy
