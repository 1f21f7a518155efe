// One HTTP request whose body continues a file. What a failure means for the next attempt is said; retries,
// mirrors and checksums are download()'s.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace convoy {

struct TransferOptions {
  int stall_seconds = 30;  // without a byte: given up
  std::function<void(std::int64_t received, std::int64_t total)>
      progress;  // total -1 where unknown; may throw
};

struct Transfer {
  enum class Outcome {
    complete,     // the file holds all that the server has
    interrupted,  // trying again may help; what came is kept
    hopeless,     // this address will answer the same again: not found, unknown host, refused certificate
  };
  Outcome outcome = Outcome::complete;
  std::string reason;  // where not complete: "HTTP 404", "connection reset after 4096 of 9999 bytes"
};

/// Asks for what `part` does not hold yet (HTTP Range); a server that sends the whole file replaces it. http
/// and https alone. OutputError where the file cannot be written.
Transfer continue_transfer(const std::string& url, const std::filesystem::path& part,
                           const TransferOptions& options);

}  // namespace convoy
