// An unused TCP port for a server that a test starts.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <stdexcept>

namespace convoy::testing {

/// Returns an unused TCP port of this machine. The socket stays bound until this process exits, so the kernel
/// does not assign the port to another program. A server that binds the port explicitly with SO_REUSEADDR
/// succeeds.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // lets the server bind the same port
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw std::runtime_error("cannot bind a TCP port on loopback");
  return ntohs(address.sin_port);
}

}  // namespace convoy::testing
