// TCP sockets with deadlines, which never raise SIGPIPE.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "convoy/comm/core/deadline.h"
#include "convoy/comm/core/endpoint.h"

namespace convoy::dist {

/// Another program listens at the port.
struct PortInUse : UsageError {
  using UsageError::UsageError;
};

/// An owned file descriptor, closed on destruction. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close() { *this = Socket(); }

 private:
  int descriptor_ = -1;
};

/// Returns a listening socket. Binds to the given address if it is a numeric address of this machine, or
/// localhost. For another name, binds to the interface that CONVOY_INTERFACE names, or else to what
/// address_to_listen_at() returns. Throws PortInUse, or UsageError if there is no such interface.
Socket listen_at(const Endpoint& endpoint);

/// Returns a pending connection; nullopt if there is none. Does not block.
std::optional<Socket> accept_waiting(const Socket& listener);

/// Tries once to connect to any address of the host, for up to 2 s after its name has been resolved: a
/// firewall that drops packets would otherwise use up the deadline. Starts with the first address and adds
/// the next one whenever an address fails or has not answered for 250 ms (RFC 8305, "Happy Eyeballs").
/// Returns nullopt and sets `reason` if no address accepts the connection before the deadline. If this side `speaks_first`,
/// its first bytes acknowledge the connection, which the other side accepts only then.
std::optional<Socket> try_connect(const Endpoint& endpoint, const Deadline& deadline, std::string& reason,
                                  bool speaks_first = true);

/// Sends all bytes. Returns false if the peer has closed the connection or the deadline has passed.
bool send_all(const Socket& socket, const std::string& bytes, const Deadline& deadline);
/// Appends at least one received byte to `bytes`. Returns false if the peer has closed the connection or the
/// deadline has passed.
bool receive_some(const Socket& socket, std::string& bytes, const Deadline& deadline);
/// Appends what has been received to `bytes`, without blocking. Returns false if the peer has closed the
/// connection.
bool receive_waiting(const Socket& socket, std::string& bytes);

/// Returns the local port: after listen_at() with port 0, the port that the system chose.
int local_port_of(const Socket& socket);
/// Returns the numeric address of this side of a connection.
std::string local_address_of(const Socket& socket);
/// Returns the numeric address of the peer.
std::string remote_address_of(const Socket& socket);

}  // namespace convoy::dist
