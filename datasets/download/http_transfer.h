// One HTTP request whose body is appended to a file. download() adds retries, mirrors and checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace convoy::data {

struct TransferOptions {
  int stall_seconds = 30;  // the transfer fails if no byte is received for this long
  /// Called from time to time; `total` is -1 if unknown. May throw, which stops the transfer.
  std::function<void(std::int64_t received, std::int64_t total)> progress;
};

/// The result of a transfer.
struct Transfer {
  enum class Outcome {
    complete,     // the file is complete
    interrupted,  // a retry may succeed; the received part is kept
    hopeless,     // a retry would fail again: not found, unknown host, rejected certificate
  };
  Outcome outcome = Outcome::complete;
  /// Empty if complete; else for example "HTTP 404" or "connection reset after 4096 of 9999 bytes".
  std::string reason;
};

/// Requests the rest of the file that `part` contains so far (HTTP Range) and appends it. If the server sends
/// the whole file, replaces `part`. Supports http and https. Blocks until the transfer ends. Throws
/// OutputError if `part` cannot be written, and rethrows exceptions of `progress`.
Transfer continue_transfer(const std::string& url, const std::filesystem::path& part,
                           const TransferOptions& options);

}  // namespace convoy::data
