// The network address of a listening socket.
#pragma once

#include <string>

namespace convoy::dist {

/// A host name or address with a TCP port, such as "10.0.0.1:29500" or "[fe80::1]:29500".
struct Endpoint {
  std::string host;
  int port = 0;

  /// Returns "HOST:PORT", or "[V6]:PORT" for an IPv6 address.
  std::string text() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Parses "HOST:PORT" or "[V6]:PORT". Throws UsageError for any other text.
Endpoint parse_endpoint(const std::string& text);

}  // namespace convoy::dist
