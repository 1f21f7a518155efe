// TCP sockets, with deadlines and without signals.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "comm/deadline.h"
#include "comm/meeting_plan.h"

namespace convoy {

/// A descriptor that somebody owns.
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

/// Listens there. Where the host is an address of this machine nobody comes in by another; a name may mean
/// something else on each machine, so with one all come in. UsageError where the port is in use.
Socket listen_at(const Endpoint& endpoint);

/// One that has connected there meanwhile, or nothing.
std::optional<Socket> accept_waiting(const Socket& listener);

/// One try, of all addresses that the name has. Nothing, with the reason, where nobody answers.
std::optional<Socket> try_connect(const Endpoint& endpoint, const Deadline& deadline, std::string& reason);

/// False where the other side has hung up, or the deadline has passed.
bool send_all(const Socket& socket, const std::string& bytes, const Deadline& deadline);
/// At least one byte, appended; false likewise.
bool receive_some(const Socket& socket, std::string& bytes, const Deadline& deadline);

/// What listen_at() has got for port 0, which is any that is free.
int local_port_of(const Socket& socket);
/// Of the connection, in digits: this side's address, and the other's.
std::string local_address_of(const Socket& socket);
std::string remote_address_of(const Socket& socket);

}  // namespace convoy
