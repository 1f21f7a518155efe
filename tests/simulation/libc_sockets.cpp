// Sockets, and waiting for them (libc.h).
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

void set_address(const Socket& socket, std::uint32_t address, int port, sockaddr* result, socklen_t* bytes) {
  sockaddr_storage whole{};
  socklen_t size = sizeof(sockaddr_in);
  if (socket.is_v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(whole);
    size = sizeof v6;
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
    const std::uint32_t in_order = htonl(address);
    std::memcpy(v6.sin6_addr.s6_addr + 12, &in_order, sizeof in_order);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(whole);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    v4.sin_addr.s_addr = htonl(address);
  }
  std::memcpy(result, &whole, std::min(*bytes, size));
  *bytes = size;
}

/// Returns the address and the port; the address is 0 for any.
std::pair<std::uint32_t, int> address_in(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    std::uint32_t last = 0;
    std::memcpy(&last, v6.sin6_addr.s6_addr + 12, sizeof last);
    return {IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? ntohl(last) : 0, ntohs(v6.sin6_port)};
  }
  const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
  return {ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
}

int free_port(Host& host) {
  while (host.listeners.contains(host.next_port)) ++host.next_port;
  return host.next_port++;
}

}  // namespace

void wait_for(File* file, short events) {
  while ((file->ready() & events) == 0) {
    file->waiters.push_back(self());
    scheduler()->block();
    std::erase(file->waiters, self());
  }
}

ssize_t send_bytes(Socket* socket, const iovec* parts, std::size_t count, int flags) {
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (socket->in->was_reset) return fail_with(ECONNRESET);
  if (socket->out->was_closed) return fail_with(EPIPE);
  if (socket->is_blocking && (flags & MSG_DONTWAIT) == 0) wait_for(socket, POLLOUT);
  const std::size_t used = socket->out->bytes_in_flight + socket->out->unread();
  if (used >= Network::kBufferBytes) return fail_with(EAGAIN);
  const std::size_t room = Network::kBufferBytes - used;
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(parts[i].iov_base),
                 std::min(parts[i].iov_len, room - bytes.size()));
  const auto sent = static_cast<ssize_t>(bytes.size());
  if (sent > 0) network()->send(socket->out, std::move(bytes), Pipe::Segment::Kind::data);
  return sent;
}

ssize_t receive_bytes(Socket* socket, void* buffer, std::size_t size) {
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (socket->is_blocking) wait_for(socket, POLLIN);
  Pipe& pipe = *socket->in;
  if (pipe.unread() == 0) {
    if (pipe.was_reset) return fail_with(ECONNRESET);
    return pipe.has_ended ? 0 : fail_with(EAGAIN);
  }
  const bool was_full = pipe.unread() + pipe.bytes_in_flight >= Network::kBufferBytes;
  const std::size_t count = std::min(size, pipe.unread());
  std::memcpy(buffer, pipe.received.data() + pipe.read, count);
  pipe.read += count;
  if (pipe.unread() == 0 || pipe.read > Network::kBufferBytes) {
    pipe.received.erase(0, pipe.read);
    pipe.read = 0;
  }
  if (was_full && pipe.writer != nullptr)
    scheduler()->at(scheduler()->now() + network()->link(pipe.from, pipe.to).latency, [kept = socket->in] {
      if (kept->writer != nullptr) kept->writer->notify();
    });
  return static_cast<ssize_t>(count);
}

}  // namespace simulation

using namespace simulation;

REPLACE(int, socket, (int domain, int type, int protocol)) {
  if (self() == nullptr || (domain != AF_INET && domain != AF_INET6)) {
    REAL(socket, domain, type, protocol);
  }
  charge(kCall);
  auto* const socket = new Socket;
  socket->host = self()->process->host;
  socket->is_v6 = domain == AF_INET6;
  return network()->open(self()->process, socket);
}

/// A pair of connected sockets also takes the place of a pipe.
REPLACE(int, socketpair, (int domain, int type, int protocol, int* ends)) {
  if (self() == nullptr) {
    REAL(socketpair, domain, type, protocol, ends);
  }
  charge(kCall);
  const auto [first, second] = network()->make_pair(self()->process->host);
  ends[0] = network()->open(self()->process, first);
  ends[1] = network()->open(self()->process, second);
  return 0;
}

REPLACE(int, pipe2, (int* ends, int flags)) {
  if (self() == nullptr) {
    REAL(pipe2, ends, flags);
  }
  return replaced_socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
}

REPLACE(int, bind, (int descriptor, const sockaddr* address, socklen_t bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(bind, descriptor, address, bytes);
  }
  charge(kCall);
  const auto [wanted, port] = address_in(address);
  if (wanted != 0 && network()->find_host(wanted, socket->host) != socket->host)
    return fail_with(EADDRNOTAVAIL);
  if (port != 0 && socket->host->listeners.contains(port)) return fail_with(EADDRINUSE);
  socket->local_address = wanted;
  socket->local_port = port != 0 ? port : free_port(*socket->host);
  socket->state = Socket::State::bound;
  return 0;
}

REPLACE(int, listen, (int descriptor, int backlog)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(listen, descriptor, backlog);
  }
  if (!socket->host->listeners.emplace(socket->local_port, socket).second) return fail_with(EADDRINUSE);
  socket->state = Socket::State::listening;
  socket->backlog = static_cast<std::size_t>(backlog);
  return 0;
}

REPLACE(int, accept4, (int descriptor, sockaddr* address, socklen_t* bytes, int flags)) {
  auto* const listener = file_of<Socket>(descriptor);
  if (listener == nullptr) {
    REAL(accept4, descriptor, address, bytes, flags);
  }
  charge(kConnectCall);
  if (listener->pending.empty()) return fail_with(EAGAIN);
  Socket* const socket = listener->pending.front();
  listener->pending.pop_front();
  return network()->open(self()->process, socket);
}

REPLACE(int, connect, (int descriptor, const sockaddr* address, socklen_t bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(connect, descriptor, address, bytes);
  }
  charge(kConnectCall);
  const auto [remote, port] = address_in(address);
  const bool is_local = remote >> 24 == 127;
  socket->state = Socket::State::connecting;
  socket->remote_address = remote;
  socket->remote_port = port;
  socket->local_address = is_local ? remote : socket->host->address;
  socket->local_port = free_port(*socket->host);
  network()->connect(socket, remote, port, 0);
  return fail_with(EINPROGRESS);
}

REPLACE(ssize_t, send, (int descriptor, const void* buffer, std::size_t size, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(send, descriptor, buffer, size, flags);
  }
  const iovec part{const_cast<void*>(buffer), size};
  const ssize_t sent = send_bytes(socket, &part, 1, flags);
  if (sent > 0 && self()->process->on_send)
    self()->process->on_send(socket->out->to,
                             {static_cast<const char*>(buffer), static_cast<std::size_t>(sent)});
  return sent;
}

REPLACE(ssize_t, sendmsg, (int descriptor, const msghdr* message, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(sendmsg, descriptor, message, flags);
  }
  return send_bytes(socket, message->msg_iov, message->msg_iovlen, flags);
}

REPLACE(ssize_t, recv, (int descriptor, void* buffer, std::size_t size, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(recv, descriptor, buffer, size, flags);
  }
  return receive_bytes(socket, buffer, size);
}

REPLACE(int, shutdown, (int descriptor, int how)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(shutdown, descriptor, how);
  }
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (how != SHUT_RD) network()->send(socket->out, "", Pipe::Segment::Kind::end);
  return 0;
}

REPLACE(int, setsockopt, (int descriptor, int level, int name, const void* value, socklen_t bytes)) {
  if (!is_simulated(descriptor)) {
    REAL(setsockopt, descriptor, level, name, value, bytes);
  }
  return 0;
}

REPLACE(int, getsockopt, (int descriptor, int level, int name, void* value, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getsockopt, descriptor, level, name, value, bytes);
  }
  const int error = std::exchange(socket->error, 0);
  std::memcpy(value, &error, sizeof error);
  return 0;
}

REPLACE(int, getsockname, (int descriptor, sockaddr* address, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getsockname, descriptor, address, bytes);
  }
  set_address(*socket, socket->local_address, socket->local_port, address, bytes);
  return 0;
}

REPLACE(int, getpeername, (int descriptor, sockaddr* address, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getpeername, descriptor, address, bytes);
  }
  set_address(*socket, socket->remote_address, socket->remote_port, address, bytes);
  return 0;
}

REPLACE(int, poll, (pollfd * list, nfds_t count, int milliseconds)) {
  if (self() == nullptr) {
    REAL(poll, list, count, milliseconds);
  }
  charge(kCall + static_cast<Time>(count) * 10);
  const Time until = milliseconds < 0 ? kNever : scheduler()->now() + milliseconds * kMillisecond;
  while (true) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      const File* const file = list[i].fd < 0 ? nullptr : network()->file(list[i].fd);
      list[i].revents = 0;
      if (list[i].fd >= 0 && file == nullptr) list[i].revents = POLLNVAL;
      if (file != nullptr)
        list[i].revents = static_cast<short>(file->ready() & (list[i].events | POLLERR | POLLHUP));
      ready += list[i].revents != 0 ? 1 : 0;
    }
    if (ready > 0 || scheduler()->now() >= until) return ready;
    // A file that another thread closes meanwhile remains, as a description that a system call uses.
    std::vector<File*> files;
    for (nfds_t i = 0; i < count; ++i)
      if (list[i].fd >= 0) files.push_back(network()->file(list[i].fd));
    for (File* const file : files) file->waiters.push_back(self());
    scheduler()->block(until);
    for (File* const file : files) std::erase(file->waiters, self());
  }
}
