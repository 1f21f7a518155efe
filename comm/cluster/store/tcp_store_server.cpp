#include "convoy/comm/cluster/store/tcp_store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "convoy/comm/cluster/store/store_member.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using Kind = StoreFrame::Kind;

constexpr std::chrono::seconds kHelloTimeout(5);                // for the hello message of a client
constexpr std::chrono::milliseconds kServerShutdownWait(1000);  // for connected clients to disconnect
constexpr std::size_t kMaxStrangers = 64;  // clients that are not identified and may be no ranks
constexpr std::size_t kMaxConnectionsPerRank = 16;
constexpr std::size_t kMaxTotalBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxHelloBytes = 256;
constexpr std::chrono::milliseconds kAcceptPause(100);  // without a file descriptor for a client
constexpr double kRefusalSeconds = 0.1;                 // for the hello message of a client that is refused

Socket spare_descriptor() { return Socket(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

std::string bytes_of(Kind kind, const std::string& value = "") {
  return StoreFrame{.kind = kind, .key = "", .value = value}.bytes();
}

}  // namespace

TcpStoreServer::TcpStoreServer(Socket listener, int world_size, std::string job, std::string secret)
    : listener_(std::move(listener)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(spare_descriptor()),
      world_size_(world_size),
      job_(std::move(job)),
      secret_(std::move(secret)),
      thread_([this] { serve(); }) {}

TcpStoreServer::~TcpStoreServer() {
  stopping_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.descriptor(), &one, sizeof one);
  thread_.join();
}

void TcpStoreServer::serve() {
  Clock::time_point end = Clock::time_point::max();
  while (true) {
    if (stopping_ && listener_) {
      listener_.close();  // frees the port for the next job
      end = Clock::now() + kServerShutdownWait;
    }
    if (stopping_ && (Clock::now() >= end || std::none_of(clients_.begin(), clients_.end(),
                                                          [](const Client& c) { return c.rank >= 0; })))
      return;
    std::vector<pollfd> waiting = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                                   {.fd = Clock::now() < accept_again_at_ ? -1 : listener_.descriptor(),
                                    .events = POLLIN,
                                    .revents = 0}};
    for (const Client& client : clients_) {
      // Does not read further requests before the reply is sent.
      const short events = client.out.empty() ? POLLIN : POLLOUT;
      waiting.push_back({.fd = client.socket.descriptor(), .events = events, .revents = 0});
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(std::min(end, next_event()) - Clock::now());
    poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
    if (waiting[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.descriptor(), &count, sizeof count);
    }
    std::size_t at = 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++at) {
      const bool stays = waiting[at].revents == 0 || (client->out.empty() ? read(*client) : write(*client));
      client = stays ? std::next(client) : clients_.erase(client);
    }
    if (waiting[1].revents != 0) accept_clients();
    answer_waiting_clients();
    close_unidentified_clients();
  }
}

void TcpStoreServer::accept_clients() {
  while (true) {
    Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) refuse_client();
      return;
    }
    const auto is_unidentified = [](const Client& client) { return client.rank < 0; };
    if (static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), is_unidentified)) >=
        kMaxStrangers + static_cast<std::size_t>(world_size_))  // all ranks may come at the same time
      clients_.erase(std::find_if(clients_.begin(), clients_.end(), is_unidentified));  // the oldest
    const auto judge = [](const std::string& claim) {
      return claim == kStoreClaim ? "" : "this is the rendezvous of a job";
    };
    clients_.push_back({.socket = std::move(socket),
                        .handshake = Handshake::accept(secret_, judge),
                        .connected_at = Clock::now()});
  }
}

void TcpStoreServer::refuse_client() {
  spare_.close();
  if (const std::optional<Socket> socket = accept_waiting(listener_)) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::string hello;  // read first: closing a socket with unread bytes discards those that were sent
    receive_some(*socket, hello, Deadline(kRefusalSeconds));
    send_all(
        *socket,
        Handshake::refusal(fmt::format(
            "all {} file descriptors of rank 0 are in use; raise its limit with ulimit -n", limit.rlim_cur)),
        Deadline(kRefusalSeconds));
  }
  spare_ = spare_descriptor();
  // Otherwise poll() would report the listener again at once, and this thread would use a whole core.
  if (!spare_) accept_again_at_ = Clock::now() + kAcceptPause;
}

bool TcpStoreServer::read(Client& client) {
  char block[16384];
  const ssize_t now = recv(client.socket.descriptor(), block, sizeof block, 0);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  if (now == 0) return false;
  client.in.append(block, static_cast<std::size_t>(now));
  if (client.handshake.state() == Handshake::State::running && !identify(client)) return false;
  if (client.handshake.state() != Handshake::State::done) return true;
  try {
    const std::size_t max_bytes = client.rank < 0 ? kMaxHelloBytes : StoreFrame::kMaxValueBytes;
    const std::optional<StoreFrame> frame = take_frame(client.in, max_bytes);
    // Ranks send one request at a time. Disconnects a client that sends another one before the reply.
    return !frame || (client.in.empty() && !client.waits && answer(client, *frame));
  } catch (const DataError&) {
    return false;
  }
}

bool TcpStoreServer::identify(Client& client) {
  const Handshake::State state = client.handshake.advance(client.in, client.out);
  client.close_after_reply = state == Handshake::State::refused;
  return state == Handshake::State::running || state == Handshake::State::done || client.close_after_reply;
}

bool TcpStoreServer::write(Client& client) {
  const ssize_t now = send(client.socket.descriptor(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  client.out.erase(0, static_cast<std::size_t>(now));
  return !client.out.empty() || !client.close_after_reply;
}

bool TcpStoreServer::answer(Client& client, const StoreFrame& frame) {
  if (client.rank < 0) {
    if (frame.kind != Kind::hello) return false;
    const std::string refusal = admit(frame, client);
    client.close_after_reply = !refusal.empty();
    client.out = client.close_after_reply ? bytes_of(Kind::refused, refusal) : bytes_of(Kind::ok);
  } else if (frame.kind == Kind::set) {
    if (!may_set(client.rank, frame.key)) return false;
    if (bytes_ + frame.key.size() + frame.value.size() > kMaxTotalBytes) return false;
    if (values_.emplace(frame.key, frame.value).second) bytes_ += frame.key.size() + frame.value.size();
    client.out = bytes_of(Kind::ok);
  } else if (frame.kind == Kind::get) {
    std::int64_t milliseconds = 0;
    std::istringstream(frame.value) >> milliseconds;
    client.waits = true;
    client.key = frame.key;
    client.wait_until =
        Clock::now() + std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 0, 86'400'000));
  } else {
    return false;
  }
  return true;
}

std::string TcpStoreServer::admit(const StoreFrame& hello, Client& client) {
  int rank = -1, world_size = 0;
  std::string token;
  std::istringstream(hello.value) >> rank >> world_size >> token;
  if (hello.key != job_)
    return fmt::format("the port belongs to job '{}', not '{}'; use a different port for each job", job_,
                       hello.key);
  if (world_size != world_size_)
    return fmt::format("rank 0 has a world size of {}, rank {} of {}", world_size_, rank, world_size);
  if (rank < 0 || rank >= world_size_)
    return fmt::format("found rank {}, expected a rank below {}", rank, world_size_);
  const auto [entry, first] = tokens_.emplace(rank, token);
  if (entry->second != token)
    return fmt::format(
        "a rank {} has already joined: either two processes have this rank, or two jobs use this port", rank);
  const auto connections = std::count_if(clients_.begin(), clients_.end(),
                                         [&](const Client& other) { return other.rank == rank; });
  if (static_cast<std::size_t>(connections) >= kMaxConnectionsPerRank)
    return fmt::format("rank {} already has {} connections, the maximum", rank, connections);
  client.rank = rank;
  return "";
}

void TcpStoreServer::answer_waiting_clients() {
  for (Client& client : clients_) {
    if (!client.waits) continue;
    const auto found = values_.find(client.key);
    if (found == values_.end() && Clock::now() < client.wait_until) continue;
    client.waits = false;
    client.out = found == values_.end() ? bytes_of(Kind::absent) : bytes_of(Kind::value, found->second);
  }
}

void TcpStoreServer::close_unidentified_clients() {
  clients_.remove_if([now = Clock::now()](const Client& client) {
    return client.rank < 0 && now >= client.connected_at + kHelloTimeout;
  });
}

TcpStoreServer::Clock::time_point TcpStoreServer::next_event() const {
  Clock::time_point next = Clock::now() + std::chrono::minutes(1);
  if (accept_again_at_ > Clock::now()) next = accept_again_at_;
  for (const Client& client : clients_) {
    if (client.rank < 0) next = std::min(next, client.connected_at + kHelloTimeout);
    if (client.waits) next = std::min(next, client.wait_until);
  }
  return next;
}

}  // namespace convoy::dist
