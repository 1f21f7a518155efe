#include "convoy/comm/cluster/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kTrySeconds = 2;             // of try_connect(), for all addresses
constexpr double kOwnNameSeconds = 5;         // for the name servers, to resolve the name of this host
constexpr double kNextAddressSeconds = 0.25;  // before the next address is tried as well

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const Endpoint& endpoint, int flags, std::string& reason) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) reason = fmt::format("{}: {}", endpoint.host, gai_strerror(error));
  return Addresses(error == 0 ? found : nullptr);
}

/// Resolves a name, which takes as long as the name servers do: getaddrinfo() has no timeout. After the
/// deadline, its thread continues alone.
Addresses resolve_name(const Endpoint& endpoint, const Deadline& deadline, std::string& reason) {
  using Answer = std::pair<Addresses, std::string>;
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> future = promise->get_future();
  std::thread([promise, endpoint] {
    std::string why;
    Addresses addresses = resolve(endpoint, 0, why);
    promise->set_value({std::move(addresses), std::move(why)});
  }).detach();
  if (future.wait_until(deadline.at()) != std::future_status::ready) {
    reason = fmt::format("{}: the name servers do not answer", endpoint.host);
    return nullptr;
  }
  Answer answer = future.get();
  if (!answer.first) reason = std::move(answer.second);
  return std::move(answer.first);
}

Socket open_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.descriptor(), level, option, &value, sizeof value);
}

/// Returns 0 or the error of bind() or listen().
int bind_and_listen(const Socket& socket, const sockaddr* address, socklen_t bytes) {
  // Connections of the previous job stay in TIME_WAIT for a minute.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.descriptor(), address, bytes) != 0) return errno;
  return listen(socket.descriptor(), SOMAXCONN) == 0 ? 0 : errno;
}

/// Listens on all interfaces. Returns 0 or the error.
int listen_anywhere(Socket& socket, int port) {
  socket = open_socket(AF_INET6);
  if (socket) {
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);  // accepts IPv4, too
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(static_cast<std::uint16_t>(port));
    const int error = bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&any), sizeof any);
    if (error == 0 || error == EADDRINUSE) return error;
  }
  socket = open_socket(AF_INET);  // the machine has no IPv6
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  return bind_and_listen(socket, reinterpret_cast<const sockaddr*>(&any), sizeof any);
}

int milliseconds_left(const Deadline& deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  return static_cast<int>(std::min<std::int64_t>(left, 1'000'000));
}

/// Returns whether the socket became ready before the deadline.
bool wait_ready(const Socket& socket, short events, const Deadline& deadline) {
  while (true) {
    pollfd waiting{.fd = socket.descriptor(), .events = events, .revents = 0};
    const int ready = poll(&waiting, 1, milliseconds_left(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (deadline.passed()) return false;
  }
}

/// Returns the index of a socket whose connection has been made or has failed; nullopt if there is none
/// before the deadline.
std::optional<std::size_t> wait_any(std::span<const Socket> sockets, const Deadline& deadline) {
  std::vector<pollfd> waiting;
  for (const Socket& socket : sockets)
    waiting.push_back({.fd = socket.descriptor(), .events = POLLOUT, .revents = 0});
  do {
    if (poll(waiting.data(), waiting.size(), milliseconds_left(deadline)) > 0)
      for (std::size_t i = 0; i < waiting.size(); ++i)
        if (waiting[i].revents != 0) return i;
  } while (!deadline.passed());
  return std::nullopt;
}

/// Returns the numeric address.
std::string numeric_address(const sockaddr* address, socklen_t bytes) {
  char host[NI_MAXHOST] = {};
  getnameinfo(address, bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  const std::string text = host;
  constexpr const char* kMapped = "::ffff:";  // IPv4 connection of an IPv6 socket
  return text.starts_with(kMapped) ? text.substr(std::strlen(kMapped)) : text;
}

/// Returns what `side`, getsockname() or getpeername(), tells of a connection.
template <class Side>
std::pair<sockaddr_storage, socklen_t> name_from(Side side, const Socket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  side(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return {address, bytes};
}

template <class Side>
std::string numeric_address(Side side, const Socket& socket) {
  const auto [address, bytes] = name_from(side, socket);
  return numeric_address(reinterpret_cast<const sockaddr*>(&address), bytes);
}

/// Returns the address of this host that its name stands for; nullopt for all of its addresses.
std::optional<std::string> own_address_of(const Endpoint& endpoint) {
  std::string ignored;
  std::vector<std::string> resolved;
  const Addresses addresses = resolve_name(endpoint, Deadline(kOwnNameSeconds), ignored);
  for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next)
    resolved.push_back(numeric_address(next->ai_addr, next->ai_addrlen));
  return address_to_listen_at(resolved, addresses_of_this_host());
}

Socket with_options(Socket socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_QUICKACK, 0);  // messages are soon answered, which acknowledges them
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listen_at(const Endpoint& endpoint) {
  Socket socket;
  int error = EADDRNOTAVAIL;
  std::string ignored;  // the error if the host is a name
  if (const Addresses literal = resolve(endpoint, AI_NUMERICHOST, ignored)) {
    socket = open_socket(literal->ai_family);
    if (socket) error = bind_and_listen(socket, literal->ai_addr, literal->ai_addrlen);
  } else if (endpoint.host == "localhost") {
    return listen_at({"127.0.0.1", endpoint.port});
  } else {
    std::optional<std::string> chosen = address_of_chosen_interface();
    if (!chosen) chosen = own_address_of(endpoint);
    if (chosen) return listen_at({*chosen, endpoint.port});
  }
  if (error == EADDRNOTAVAIL)
    error = listen_anywhere(socket, endpoint.port);  // a name, or an address of a gateway
  if (error == EADDRINUSE)
    fail<PortInUse>("tcp://{}: port {} of this host is in use; choose another port", endpoint.text(),
                    endpoint.port);
  check(error == 0, "tcp://{}: rank 0 cannot listen at this address: {}", endpoint.text(),
        std::strerror(error));
  return socket;
}

std::optional<Socket> accept_waiting(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return std::nullopt;
  return with_options(std::move(socket));
}

std::optional<Socket> try_connect(const Endpoint& endpoint, const Deadline& deadline, std::string& reason,
                                  bool speaks_first) {
  std::string ignored;
  Addresses addresses = resolve(endpoint, AI_NUMERICHOST, ignored);
  if (!addresses) addresses = resolve_name(endpoint, deadline, reason);
  const Deadline end(std::min(kTrySeconds, std::chrono::duration<double>(deadline.left()).count()));
  std::vector<Socket> pending;
  for (const addrinfo* next = addresses.get(); next != nullptr || !pending.empty();) {
    if (next != nullptr) {
      Socket socket = open_socket(next->ai_family);
      if (socket && speaks_first) set_option(socket, IPPROTO_TCP, TCP_QUICKACK, 0);
      const bool connected = socket && connect(socket.descriptor(), next->ai_addr, next->ai_addrlen) == 0;
      if (connected) return with_options(std::move(socket));
      if (socket && errno == EINPROGRESS)
        pending.push_back(std::move(socket));
      else
        reason = std::strerror(errno);
      next = next->ai_next;
    }
    if (pending.empty()) continue;
    const Deadline wait(next != nullptr ? std::min(kNextAddressSeconds, end.seconds()) : end.seconds());
    const std::optional<std::size_t> ready = wait_any(pending, wait.at() < end.at() ? wait : end);
    if (!ready && end.passed()) {
      reason = std::strerror(ETIMEDOUT);
      return std::nullopt;
    }
    if (!ready) continue;
    Socket socket = std::move(pending[*ready]);
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(*ready));
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) return with_options(std::move(socket));
    reason = std::strerror(error);
  }
  return std::nullopt;
}

bool send_all(const Socket& socket, const std::string& bytes, const Deadline& deadline) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = send(socket.descriptor(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now > 0) {
      sent += static_cast<std::size_t>(now);
    } else if (now < 0 && errno != EINTR && (errno != EAGAIN || !wait_ready(socket, POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool receive_some(const Socket& socket, std::string& bytes, const Deadline& deadline) {
  const std::size_t before = bytes.size();
  do {
    if (!receive_waiting(socket, bytes)) return false;
    if (bytes.size() > before) return true;
  } while (wait_ready(socket, POLLIN, deadline));
  return false;
}

bool receive_waiting(const Socket& socket, std::string& bytes) {
  char block[16384];
  const ssize_t now = recv(socket.descriptor(), block, sizeof block, 0);
  if (now > 0) bytes.append(block, static_cast<std::size_t>(now));
  return now > 0 || (now < 0 && (errno == EAGAIN || errno == EINTR));
}

int local_port_of(const Socket& socket) {
  const auto [address, bytes] = name_from(getsockname, socket);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address_of(const Socket& socket) { return numeric_address(getsockname, socket); }

std::string remote_address_of(const Socket& socket) { return numeric_address(getpeername, socket); }

}  // namespace convoy::dist
