#include "comm/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

using Kind = StoreFrame::Kind;

constexpr std::chrono::seconds kSilence(5);           // until a client has said hello
constexpr std::chrono::milliseconds kFarewell(1000);  // at the end, for those that are still there
constexpr std::size_t kStrangers = 64;                // at once
constexpr std::size_t kConnectionsOfARank = 16;
constexpr std::size_t kAllBytes = std::size_t{256} << 20;
constexpr std::size_t kLongestHello = 256;

std::string bytes_of(Kind kind, const std::string& value = "") {
  return StoreFrame{.kind = kind, .key = "", .value = value}.bytes();
}

}  // namespace

TcpStoreServer::TcpStoreServer(Socket listener, int world, std::string job)
    : listener_(std::move(listener)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      world_(world),
      job_(std::move(job)),
      thread_([this] { serve(); }) {}

TcpStoreServer::~TcpStoreServer() {
  ending_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.descriptor(), &one, sizeof one);
  thread_.join();
}

void TcpStoreServer::serve() {
  Clock::time_point end = Clock::time_point::max();
  while (true) {
    if (ending_ && listener_) {
      listener_.close();  // the next job may have the port
      end = Clock::now() + kFarewell;
    }
    if (ending_ && (Clock::now() >= end || std::none_of(clients_.begin(), clients_.end(),
                                                        [](const Client& c) { return c.rank >= 0; })))
      return;
    std::vector<pollfd> waiting = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                                   {.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Client& client : clients_) {
      const short events = client.out.empty() ? POLLIN : POLLOUT;  // reads no more before it was answered
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
    answer_the_waiting();
    hang_up_on_the_silent();
  }
}

void TcpStoreServer::accept_clients() {
  while (true) {
    Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    const auto is_stranger = [](const Client& client) { return client.rank < 0; };
    if (static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), is_stranger)) >= kStrangers)
      clients_.erase(std::find_if(clients_.begin(), clients_.end(), is_stranger));  // the oldest
    clients_.push_back({.socket = std::move(socket), .since = Clock::now()});
  }
}

bool TcpStoreServer::read(Client& client) {
  char block[16384];
  const ssize_t now = recv(client.socket.descriptor(), block, sizeof block, 0);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  if (now == 0) return false;
  client.in.append(block, static_cast<std::size_t>(now));
  try {
    const std::size_t longest = client.rank < 0 ? kLongestHello : StoreFrame::kLongestValue;
    const std::optional<StoreFrame> frame = take_frame(client.in, longest);
    // One question at a time: whoever asks on before the answer is none of us.
    return !frame || (client.in.empty() && !client.waits && answer(client, *frame));
  } catch (const DataError&) {
    return false;
  }
}

bool TcpStoreServer::write(Client& client) {
  const ssize_t now = send(client.socket.descriptor(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  client.out.erase(0, static_cast<std::size_t>(now));
  return !client.out.empty() || !client.leaves;
}

bool TcpStoreServer::answer(Client& client, const StoreFrame& frame) {
  if (client.rank < 0) {
    if (frame.kind != Kind::hello) return false;
    const std::string refusal = welcome(frame, client);
    client.leaves = !refusal.empty();
    client.out = client.leaves ? bytes_of(Kind::refused, refusal) : bytes_of(Kind::ok);
  } else if (frame.kind == Kind::set) {
    if (bytes_ + frame.key.size() + frame.value.size() > kAllBytes) return false;
    if (values_.emplace(frame.key, frame.value).second) bytes_ += frame.key.size() + frame.value.size();
    client.out = bytes_of(Kind::ok);
  } else if (frame.kind == Kind::get) {
    std::int64_t milliseconds = 0;
    std::istringstream(frame.value) >> milliseconds;
    client.waits = true;
    client.key = frame.key;
    client.until =
        Clock::now() + std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 0, 86'400'000));
  } else {
    return false;
  }
  return true;
}

std::string TcpStoreServer::welcome(const StoreFrame& hello, Client& client) {
  int rank = -1, world = 0;
  std::string token;
  std::istringstream(hello.value) >> rank >> world >> token;
  if (hello.key != job_)
    return fmt::format("this is job '{}', not '{}': give each job a port of its own", job_, hello.key);
  if (world != world_) return fmt::format("rank 0 waits for {} ranks, rank {} for {}", world_, rank, world);
  if (rank < 0 || rank >= world_) return fmt::format("no rank {} among {}", rank, world_);
  const auto [came, first] = came_.emplace(rank, token);
  if (came->second != token)
    return fmt::format(
        "a rank {} has come already: either two processes have this rank, or two jobs this port", rank);
  const auto connections = std::count_if(clients_.begin(), clients_.end(),
                                         [&](const Client& other) { return other.rank == rank; });
  if (static_cast<std::size_t>(connections) >= kConnectionsOfARank)
    return fmt::format("rank {} has {} connections already", rank, connections);
  client.rank = rank;
  return "";
}

void TcpStoreServer::answer_the_waiting() {
  for (Client& client : clients_) {
    if (!client.waits) continue;
    const auto found = values_.find(client.key);
    if (found == values_.end() && Clock::now() < client.until) continue;
    client.waits = false;
    client.out = found == values_.end() ? bytes_of(Kind::absent) : bytes_of(Kind::value, found->second);
  }
}

void TcpStoreServer::hang_up_on_the_silent() {
  clients_.remove_if([now = Clock::now()](const Client& client) {
    return client.rank < 0 && now >= client.since + kSilence;
  });
}

TcpStoreServer::Clock::time_point TcpStoreServer::next_event() const {
  Clock::time_point next = Clock::now() + std::chrono::minutes(1);
  for (const Client& client : clients_) {
    if (client.rank < 0) next = std::min(next, client.since + kSilence);
    if (client.waits) next = std::min(next, client.until);
  }
  return next;
}

}  // namespace convoy
