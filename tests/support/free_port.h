// A port for a test's own server.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <stdexcept>

namespace convoy::testing {

/// A TCP port of this machine that is nobody's, and that nobody is given by chance while this process lives:
/// the socket, which is never closed, keeps it for those who ask for it by its number.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // so that another may listen there
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace convoy::testing
