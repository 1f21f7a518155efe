#include "convoy/comm/core/endpoint.h"

#include <charconv>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string::npos) {
    endpoint.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
    if (error != std::errc() || stop != end) endpoint.port = 0;
  }
  const bool bracketed = endpoint.host.starts_with('[') && endpoint.host.ends_with(']');
  if (bracketed) endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  const bool ambiguous = !bracketed && endpoint.host.find(':') != std::string::npos;
  check(!endpoint.host.empty() && !ambiguous && endpoint.port >= 1 && endpoint.port <= 65535,
        "tcp://{}: expected tcp://HOST:PORT or tcp://[V6]:PORT, with a port from 1 to 65535", text);
  return endpoint;
}

}  // namespace convoy::dist
