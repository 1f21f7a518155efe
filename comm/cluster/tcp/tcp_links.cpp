#include "convoy/comm/cluster/tcp/tcp_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kReasonSeconds = 1;                    // for the reason of abort() to be sent
constexpr std::chrono::seconds kGrace(1);               // after the loss of a rank that owes no message
constexpr std::chrono::milliseconds kReasonGrace(200);  // for another rank to tell why one was lost
constexpr std::size_t kMaxReasonBytes = 1 << 16;        // of a rank that has failed
constexpr std::size_t kReadBytes = 4096;                // read together with the length of a message
constexpr std::size_t kSearchBytes = 4 << 20;           // searched for the reason of a rank that has failed
constexpr std::chrono::milliseconds kSleep(50);         // between calls of the poll hook

std::array<std::byte, 8> to_bytes(std::uint64_t length) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i));
  return bytes;
}

/// Returns the length at this position of `bytes`.
std::uint64_t length_at(const std::string& bytes, std::size_t position) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i)
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[position + i])) << (8 * i);
  return length;
}

bool would_block() { return errno == EAGAIN || errno == EINTR; }

std::string format_error(int error) { return error == 0 ? "" : fmt::format(" ({})", std::strerror(error)); }

}  // namespace

TcpLinks::TcpLinks(std::shared_ptr<PeerConnector> connector, std::vector<int> members, int rank,
                   std::string group, const Deadline& deadline, const std::function<void()>& poll)
    : connector_(std::move(connector)),
      members_(std::move(members)),
      rank_(rank),
      group_(std::move(group)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const auto me = members_.begin() + rank;
  auto connections =
      connector_->connect(group_, {members_.begin(), me}, {me + 1, members_.end()}, deadline, poll);
  for (int other = 0; other < size(); ++other) {
    Peer& peer = peers_.emplace_back();
    peer.rank = other;
    const auto found = connections.find(members_[static_cast<std::size_t>(other)]);
    if (found == connections.end()) continue;
    peer.socket = std::move(found->second.socket);
    peer.read = std::move(found->second.received);
  }
}

void TcpLinks::send(int to, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(to)].out.push_back({.length = to_bytes(bytes.size()), .bytes = bytes});
}

void TcpLinks::receive(int from, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(from)].in.push_back({.bytes = bytes});
}

void TcpLinks::wait(const Deadline& deadline) { run(deadline, false); }

void TcpLinks::run(const Deadline& deadline, bool accepts_losses) {
  std::unique_lock lock(mutex_);
  try {
    while (true) {
      if (!reason_.empty()) throw PeerError(reason_);
      bool is_pending = false, has_moved = false;
      for (Peer& peer : peers_) {
        // A lost connection has no messages, but those that were started since.
        if (peer.socket) send_some(peer);
        if (peer.socket) receive_some(peer);
        is_pending = is_pending || (peer.owes_messages() && (peer.socket || !accepts_losses));
        has_moved |= std::exchange(peer.has_moved, false);
      }
      if (!accepts_losses) check_failures();
      if (has_moved) deadline.progressed();
      if (!is_pending) return drop_messages();
      if (deadline.passed())
        fail<PeerError>("rank {} waited {} s for {}", rank_, deadline.seconds(),
                        format_ranks(pending_ranks()));
      sleep(lock, kSleep);
    }
  } catch (...) {
    drop_messages();
    throw;
  }
}

void TcpLinks::send_some(Peer& peer) {
  while (!peer.out.empty()) {
    Outgoing& message = peer.out.front();
    const std::size_t of_length = std::min(message.sent, kLengthBytes), of_bytes = message.sent - of_length;
    // sendmsg() does not modify the memory, although iovec has no const.
    iovec parts[2] = {
        {message.length.data() + of_length, kLengthBytes - of_length},
        {const_cast<std::byte*>(message.bytes.data()) + of_bytes, message.bytes.size() - of_bytes}};
    msghdr header{};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    const ssize_t now = sendmsg(peer.socket.descriptor(), &header, MSG_NOSIGNAL);
    if (now < 0) {
      if (!would_block()) lose(peer, format_error(errno));
      return;
    }
    message.sent += static_cast<std::size_t>(now);
    peer.has_moved = true;
    if (message.sent == kLengthBytes + message.bytes.size()) peer.out.pop_front();
  }
}

bool TcpLinks::read_some(Peer& peer) {
  char block[kReadBytes];
  const ssize_t now = recv(peer.socket.descriptor(), block, sizeof block, 0);
  if (now > 0) peer.read.append(block, static_cast<std::size_t>(now));
  if (now == 0 || (now < 0 && !would_block())) lose(peer, format_error(now == 0 ? 0 : errno));
  return now > 0;
}

void TcpLinks::receive_some(Peer& peer) {
  while (!peer.in.empty()) {
    Incoming& message = peer.in.front();
    if (!message.has_length) {
      if (peer.read.size() < kLengthBytes) {
        if (!read_some(peer)) return;
        continue;
      }
      const std::uint64_t length = length_at(peer.read, 0);
      if (length != message.bytes.size())
        return lose(peer, fmt::format(": it has sent {} bytes, expected {}", length, message.bytes.size()));
      peer.read.erase(0, kLengthBytes);
      message.has_length = true;
    }
    const std::size_t from_read = std::min(peer.read.size(), message.bytes.size() - message.received);
    std::memcpy(message.bytes.data() + message.received, peer.read.data(), from_read);
    peer.read.erase(0, from_read);
    message.received += from_read;
    if (message.received < message.bytes.size()) {
      const ssize_t now = recv(peer.socket.descriptor(), message.bytes.data() + message.received,
                               message.bytes.size() - message.received, 0);
      if (now == 0) return lose(peer, "");
      if (now < 0) {
        if (!would_block()) lose(peer, format_error(errno));
        return;
      }
      message.received += static_cast<std::size_t>(now);
      peer.has_moved = true;
    }
    if (message.received == message.bytes.size()) peer.in.pop_front();
  }
}

void TcpLinks::watch(Peer& peer) {
  if (peer.read.size() < kLengthBytes && !read_some(peer)) return;
  if (peer.read.size() >= kLengthBytes && length_at(peer.read, 0) == 0) lose(peer, "");
}

void TcpLinks::lose(Peer& peer, const std::string& error) {
  const std::optional<std::string> reason = find_reason(peer);
  peer.error = reason ? *reason : fmt::format("rank {} has disconnected{}", peer.rank, error);
  peer.has_reason = reason.has_value();
  peer.has_lost_messages = peer.is_pending();
  const auto now = Deadline::Clock::now();
  if (!peer.has_lost_messages)
    peer.error_counts_at = now + kGrace;
  else if (!peer.has_reason)
    peer.error_counts_at = now + kReasonGrace;
  peer.socket.close();
  peer.read.clear();
  peer.rest.clear();
  peer.out.clear();
  peer.in.clear();
}

std::optional<std::string> TcpLinks::find_reason(Peer& peer) {
  char block[kReadBytes];
  const Deadline deadline(kReasonSeconds);
  while (peer.read.size() < kSearchBytes) {
    const ssize_t now = recv(peer.socket.descriptor(), block, sizeof block, 0);
    if (now > 0) peer.read.append(block, static_cast<std::size_t>(now));
    if (now == 0 || (now < 0 && errno != EAGAIN && errno != EINTR)) break;
    // The rank may be sending it.
    pollfd waiting{.fd = peer.socket.descriptor(), .events = POLLIN, .revents = 0};
    if (now < 0 && (deadline.passed() || ::poll(&waiting, 1, static_cast<int>(kSleep.count())) < 0)) break;
  }
  const bool is_amid = !peer.in.empty() && peer.in.front().has_length;
  std::size_t at = is_amid ? peer.in.front().bytes.size() - peer.in.front().received : 0;
  while (at + 2 * kLengthBytes <= peer.read.size()) {
    const std::uint64_t length = length_at(peer.read, at);
    at += kLengthBytes;
    if (length == 0) {
      const std::uint64_t reason = length_at(peer.read, at);
      at += kLengthBytes;
      if (reason > peer.read.size() - at) return std::nullopt;
      return peer.read.substr(at, reason);
    }
    if (length > peer.read.size() - at) return std::nullopt;
    at += length;
  }
  return std::nullopt;
}

void TcpLinks::check_failures() const {
  const auto now = Deadline::Clock::now();
  const auto counts = [now](const Peer& peer) {
    return !peer.error.empty() && (peer.is_pending() || now >= peer.error_counts_at);
  };
  const auto lost = std::find_if(peers_.begin(), peers_.end(), counts);
  if (lost == peers_.end()) return;
  const auto informed =
      std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.has_reason; });
  throw PeerError(informed == peers_.end() ? lost->error : informed->error);
}

bool TcpLinks::poll_peers() {
  std::unique_lock lock(mutex_);
  sleep(lock, std::chrono::milliseconds(0));
  if (!reason_.empty()) throw PeerError(reason_);
  for (const Peer& peer : peers_)
    if (!peer.error.empty()) throw PeerError(peer.error);
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.read.empty(); });
}

void TcpLinks::sleep(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
  std::vector<pollfd> waiting = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0}};
  for (const Peer& peer : peers_) {
    // A rank that owes no message may be ahead: its next message stays in the socket.
    const bool reads = !peer.in.empty() || peer.read.size() < kLengthBytes;
    const int events = POLLRDHUP | (reads ? POLLIN : 0) | (peer.out.empty() ? 0 : POLLOUT);
    waiting.push_back({.fd = peer.socket.descriptor(), .events = static_cast<short>(events), .revents = 0});
  }
  lock.unlock();
  poll();
  ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  lock.lock();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (waiting[rank + 1].revents == 0 || !peer.socket || !peer.in.empty()) continue;
    if (peer.read.size() < kLengthBytes)
      watch(peer);
    else if ((waiting[rank + 1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
      lose(peer, "");
  }
}

void TcpLinks::drop_messages() {
  for (Peer& peer : peers_) {
    if (!peer.out.empty() && peer.out.front().sent > 0) {
      const Outgoing& message = peer.out.front();
      const std::size_t of_length = std::min(message.sent, kLengthBytes);
      const auto append = [&](std::span<const std::byte> part) {
        peer.rest.append(reinterpret_cast<const char*>(part.data()), part.size());
      };
      append(std::span(message.length).subspan(of_length));
      append(message.bytes.subspan(message.sent - of_length));
    }
    peer.out.clear();
    peer.in.clear();
  }
}

std::vector<int> TcpLinks::pending_ranks() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_)
    if (peer.is_pending()) ranks.push_back(peer.rank);
  return ranks;
}

std::string TcpLinks::new_group_name() { return fmt::format("{}.{}r{}", group_, groups_++, rank_); }

std::unique_ptr<MessageLinks> TcpLinks::make_group(std::span<const int> members, const std::string& name,
                                                   const Deadline& deadline) {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(members_[static_cast<std::size_t>(member)]);
  const auto me = std::find(members.begin(), members.end(), rank_);
  const auto check_abort = [this] {
    poll();
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw PeerError(reason_);
  };
  return std::make_unique<TcpLinks>(connector_, ranks, static_cast<int>(me - members.begin()), name, deadline,
                                    check_abort);
}

/// A rank may disconnect only after the others have received its messages. So each rank sends a byte to all others
/// and waits for theirs.
void TcpLinks::leave(const Deadline& deadline) {
  const std::byte local{};
  std::vector<std::byte> theirs(peers_.size());
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    send(other, {&local, 1});
    receive(other, {&theirs[static_cast<std::size_t>(other)], 1});
  }
  try {
    run(deadline, true);
  } catch (const PeerError&) {  // a rank is missing: this one leaves without it
  }
}

void TcpLinks::abort(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason.empty() ? fmt::format("rank {} has failed", rank_) : reason;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.descriptor(), &one, sizeof one);
    drop_messages();
    send_reason();
  } catch (const std::exception&) {  // the others then see that this rank has disconnected
  }
}

void TcpLinks::send_reason() {
  const std::string text = reason_.substr(0, kMaxReasonBytes);
  std::string announcement;
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{text.size()}})
    for (const std::byte byte : to_bytes(length)) announcement += static_cast<char>(byte);
  announcement += text;
  std::vector<pollfd> waiting;
  for (Peer& peer : peers_) {
    if (peer.socket) peer.rest += announcement;
    waiting.push_back({.fd = peer.socket.descriptor(), .events = POLLOUT, .revents = 0});
  }
  for (const Deadline deadline(kReasonSeconds);;) {
    bool is_done = true;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer& peer = peers_[rank];
      if (waiting[rank].fd < 0) continue;
      const ssize_t now = ::send(waiting[rank].fd, peer.rest.data(), peer.rest.size(), MSG_NOSIGNAL);
      if (now > 0) peer.rest.erase(0, static_cast<std::size_t>(now));
      if (peer.rest.empty() || (now < 0 && !would_block())) {
        shutdown(waiting[rank].fd, SHUT_WR);
        waiting[rank].fd = -1;
      }
      is_done = is_done && waiting[rank].fd < 0;
    }
    if (is_done || deadline.passed()) return;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(kSleep.count()));
  }
}

}  // namespace convoy::dist
