#include "convoy/comm/cluster/tcp/tcp_communicator.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/net/peer_connector.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/message_links.h"
#include "convoy/comm/core/wait_watch.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kReasonSeconds = 1;                    // without progress of the reason of abort()
constexpr std::chrono::seconds kGrace(1);               // after the loss of a rank that owes no message
constexpr std::chrono::milliseconds kReasonGrace(200);  // for another rank to tell why one was lost
constexpr std::size_t kMaxReasonBytes = 1 << 16;        // of a rank that has failed
constexpr std::size_t kReadBytes = 4096;                // read together with the length of a message
constexpr std::size_t kSearchBytes = 4 << 20;           // searched for the reason of a rank that has failed
constexpr std::chrono::milliseconds kSleep(50);         // between calls of the poll hook

bool would_block() { return errno == EAGAIN || errno == EINTR; }

std::string format_error(int error) { return error == 0 ? "" : fmt::format(" ({})", std::strerror(error)); }

/// MessageLinks through TCP. A message is its length in 8 bytes, little endian, and that many bytes. A length
/// of 0 announces that the rank has called abort(): the length of the reason and its text follow. A
/// length from kWaits on has no bytes: the rank waits (WaitWatch) in the round that the other bits number.
///
/// The links have no thread. The thread of the caller moves the data while it is in wait(), and sleeps until
/// a socket is ready. abort() sends its reason from the thread that calls it.
class TcpLinks final : public MessageLinks {
 public:
  /// Connects `members`, which are ranks of the job in ascending order, each with those of `graph`. Collective call.
  /// `rank` is the position of this process among them, `group` the unique name of the group. PeerConnector::connect()
  /// calls `poll`. Throws PeerError that names missing ranks of the job.
  TcpLinks(std::shared_ptr<PeerConnector> connector, std::vector<int> members, int rank, std::string group,
           LinkGraph graph, const Deadline& deadline, const std::function<void()>& poll = {})
      : connector_(std::move(connector)),
        members_(std::move(members)),
        rank_(rank),
        group_(std::move(group)),
        graph_(std::move(graph)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        watch_(static_cast<int>(members_.size())) {
    std::vector<int> lower, higher;
    for (const int other : graph_(members_, rank))
      (other < rank ? lower : higher).push_back(members_[static_cast<std::size_t>(other)]);
    auto connections = connector_->connect(group_, lower, higher, deadline, poll);
    for (int other = 0; other < size(); ++other) {
      Peer& peer = peers_.emplace_back();
      peer.rank = other;
      const auto found = connections.find(members_[static_cast<std::size_t>(other)]);
      if (found == connections.end()) continue;
      peer.socket = std::move(found->second.socket);
      peer.read = std::move(found->second.received);
    }
  }

  std::string name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  void send(int to, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    start_message(linked(to), bytes.size()).bytes = bytes;
  }

  void receive(int from, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    Peer& peer = linked(from);
    peer.may_receive = !peer.read.empty();
    peer.in.push_back({.bytes = bytes});
  }

  void wait(const Deadline& deadline) override { run(deadline, false); }
  bool poll_peers() override {
    std::unique_lock lock(mutex_);
    sleep(lock, std::chrono::milliseconds(0));
    if (!reason_.empty()) throw PeerError(reason_);
    for (const Peer& peer : peers_)
      if (!peer.error.empty()) throw PeerError(peer.error);
    return watch_.last_round() > round() ||
           std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.read.empty(); });
  }

  std::string new_group_name() override { return fmt::format("{}.{}r{}", group_, groups_++, rank_); }
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(members_[static_cast<std::size_t>(member)]);
    const auto me = std::find(members.begin(), members.end(), rank_);
    const auto check_abort = [this] {
      poll();
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) throw PeerError(reason_);
    };
    return std::make_unique<TcpLinks>(connector_, ranks, static_cast<int>(me - members.begin()), name, graph_,
                                      deadline, check_abort);
  }

  /// A rank may disconnect only after the others have received its messages. So each rank sends a byte to all
  /// its peers and waits for theirs.
  void leave(const Deadline& deadline) override {
    const std::byte local{};
    std::vector<std::byte> theirs(peers_.size());
    for (int other = 0; other < size(); ++other) {
      if (!peers_[static_cast<std::size_t>(other)].socket) continue;
      send(other, {&local, 1});
      receive(other, {&theirs[static_cast<std::size_t>(other)], 1});
    }
    try {
      run(deadline, true);
    } catch (const PeerError&) {  // a rank is missing: this one leaves without it
    }
  }

  void abort(const std::string& reason) noexcept override {
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

 private:
  static constexpr std::size_t kLengthBytes = 8;
  static constexpr std::uint64_t kWaits = std::uint64_t{1} << 63;

  struct Outgoing {
    std::string length;
    std::span<const std::byte> bytes;
    std::size_t sent = 0;  // bytes, including the length
  };
  struct Incoming {
    std::span<std::byte> bytes;
    std::size_t received = 0;  // bytes, without the length
    bool has_length = false;
  };
  struct Peer {
    int rank = 0;
    Socket socket;     // closed if the connection is lost
    std::string read;  // bytes that have been received, but not used
    std::deque<Outgoing> out;
    std::deque<Incoming> in;
    std::string rest;   // of a message that was sent in part when an error has ended wait()
    std::string error;  // why the connection is lost
    Deadline::Clock::time_point error_counts_at{};
    bool has_reason = false;         // whether `error` is the reason of abort()
    bool has_lost_messages = false;  // whether messages were dropped with the connection
    bool has_moved = false;          // bytes of messages, since wait() has last looked
    bool may_send = false;           // a call would move bytes, as far as is known
    bool may_receive = false;        // the same, or bytes have been received
    bool is_pending() const { return !out.empty() || !in.empty(); }
    bool owes_messages() const { return is_pending() || has_lost_messages; }
  };

  /// Returns a peer to which there is a link, or was.
  Peer& linked(int rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    check(peer.socket || !peer.error.empty(), "rank {} has no link to rank {}", rank_, rank);
    return peer;
  }

  static Outgoing& start_message(Peer& peer, std::uint64_t length) {
    peer.may_send = true;
    Outgoing& message = peer.out.emplace_back();
    append_number(message.length, length, kLengthBytes);
    return message;
  }

  /// Moves data until all messages have completed. With `accepts_losses`, a lost connection completes its
  /// messages.
  void run(const Deadline& deadline, bool accepts_losses) {
    std::unique_lock lock(mutex_);
    watch_.is_due(deadline, true);
    try {
      while (true) {
        if (!reason_.empty()) throw PeerError(reason_);
        bool is_pending = false, has_moved = false;
        for (Peer& peer : peers_) {
          // A lost connection has no messages, but those that were started since.
          if (peer.socket && peer.may_send) send_some(peer);
          if (peer.socket && peer.may_receive) receive_some(peer);
          is_pending = is_pending || (peer.owes_messages() && (peer.socket || !accepts_losses));
          has_moved |= std::exchange(peer.has_moved, false);
        }
        if (!accepts_losses) check_failures();
        if (has_moved) deadline.progressed();
        if (!is_pending) return drop_messages();
        if (deadline.passed()) watch_.check(deadline, rank_, pending_ranks());
        if (watch_.is_due(deadline))
          for (Peer& peer : peers_)
            if (peer.socket && peer.out.empty()) start_message(peer, kWaits | round());
        sleep(lock, kSleep);
      }
    } catch (...) {
      drop_messages();
      throw;
    }
  }

  /// Moves what can be moved without blocking.
  static void send_some(Peer& peer) {
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
      const int more = peer.out.size() > 1 ? MSG_MORE : 0;  // in one segment with the next message
      const ssize_t now = sendmsg(peer.socket.descriptor(), &header, MSG_NOSIGNAL | more);
      if (now < 0) {
        if (!would_block()) lose(peer, format_error(errno));
        return;
      }
      message.sent += static_cast<std::size_t>(now);
      peer.has_moved = peer.has_moved || !message.bytes.empty();
      if (message.sent == kLengthBytes + message.bytes.size()) peer.out.pop_front();
    }
  }

  /// Takes the announcement that the peer waits, if it is next.
  bool take_wait(Peer& peer) {
    if (peer.read.size() < kLengthBytes) return false;
    const std::uint64_t length = number_at(peer.read, 0, kLengthBytes);
    if (length < kWaits) return false;
    peer.read.erase(0, kLengthBytes);
    watch_.set_told(peer.rank, length - kWaits);
    return true;
  }

  void receive_some(Peer& peer) {
    while (!peer.in.empty()) {
      Incoming& message = peer.in.front();
      if (!message.has_length) {
        if (peer.read.size() < kLengthBytes) {
          if (!read_some(peer)) return;
          continue;
        }
        if (take_wait(peer)) continue;
        const std::uint64_t length = number_at(peer.read, 0, kLengthBytes);
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

  /// Receives what fits a small block into peer.read. Returns whether there were any.
  static bool read_some(Peer& peer) {
    char block[kReadBytes];
    const ssize_t now = recv(peer.socket.descriptor(), block, sizeof block, 0);
    if (now > 0) peer.read.append(block, static_cast<std::size_t>(now));
    if (now == 0 || (now < 0 && !would_block())) lose(peer, format_error(now == 0 ? 0 : errno));
    return now > 0;
  }

  /// Looks at the next bytes of a peer that owes no message: it may have failed.
  void watch(Peer& peer) {
    do {
      if (peer.read.size() < kLengthBytes && !read_some(peer)) return;
    } while (take_wait(peer));
    if (peer.read.size() >= kLengthBytes && number_at(peer.read, 0, kLengthBytes) == 0) lose(peer, "");
  }

  /// Closes the connection, and drops its messages. The error is the reason with which the peer has called
  /// abort(), if that can be found among the bytes that it has sent, otherwise `error`.
  static void lose(Peer& peer, const std::string& error) {
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

  static std::optional<std::string> find_reason(Peer& peer) {
    const Deadline deadline(kReasonSeconds);  // the rank may be sending it
    while (peer.read.size() < kSearchBytes && dist::receive_some(peer.socket, peer.read, deadline)) {
    }
    const bool is_amid = !peer.in.empty() && peer.in.front().has_length;
    std::size_t at = is_amid ? peer.in.front().bytes.size() - peer.in.front().received : 0;
    while (at + 2 * kLengthBytes <= peer.read.size()) {
      const std::uint64_t length = number_at(peer.read, at, kLengthBytes);
      at += kLengthBytes;
      if (length >= kWaits) continue;
      if (length == 0) {
        const std::uint64_t reason = number_at(peer.read, at, kLengthBytes);
        at += kLengthBytes;
        if (reason > peer.read.size() - at) return std::nullopt;
        return peer.read.substr(at, reason);
      }
      if (length > peer.read.size() - at) return std::nullopt;
      at += length;
    }
    return std::nullopt;
  }

  /// Throws the error of a lost connection, which is the reason of abort() if that rank, or another lost one,
  /// has called it. A rank that was lost without a reason, amid a message, counts a moment later: it may have
  /// exited because of the reason of another rank, which is on its way. If this rank has no messages for the
  /// lost one, it throws a second after the loss: a rank may have exited after a collective that is not
  /// complete here, but will be.
  void check_failures() const {
    const auto now = Deadline::Clock::now();
    const auto counts = [now](const Peer& peer) {
      return !peer.error.empty() && (peer.is_pending() || now >= peer.error_counts_at);
    };
    const auto lost = std::find_if(peers_.begin(), peers_.end(), counts);
    if (lost == peers_.end()) return;
    const auto informed =
        std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.has_reason; });
    if (informed == peers_.end()) throw PeerError(lost->error);
    throw ForwardedError(informed->error);
  }

  /// Blocks until a connection is ready or abort() is called, for `limit` at most. Releases the lock
  /// meanwhile. Then watches the peers that owe no message.
  void sleep(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit) {
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
      const int found = waiting[rank + 1].revents;
      peer.may_send = (found & ~(POLLIN | POLLRDHUP)) != 0;
      peer.may_receive = (found & ~POLLOUT) != 0;
      if (found == 0 || !peer.socket || !peer.in.empty()) continue;
      if (peer.read.size() < kLengthBytes)
        watch(peer);
      else if ((found & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
        lose(peer, "");
    }
  }

  void send_reason() {
    const std::string text = reason_.substr(0, kMaxReasonBytes);
    std::string announcement(kLengthBytes, '\0');
    append_number(announcement, text.size(), kLengthBytes);
    announcement += text;
    std::vector<pollfd> waiting;
    for (Peer& peer : peers_) {
      if (peer.socket) peer.rest += announcement;
      waiting.push_back({.fd = peer.socket.descriptor(), .events = POLLOUT, .revents = 0});
    }
    for (Deadline deadline(kReasonSeconds);;) {
      const bool is_late = deadline.passed();
      bool is_done = true;
      for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
        Peer& peer = peers_[rank];
        if (waiting[rank].fd < 0) continue;
        const ssize_t now = ::send(waiting[rank].fd, peer.rest.data(), peer.rest.size(), MSG_NOSIGNAL);
        if (now > 0) {
          peer.rest.erase(0, static_cast<std::size_t>(now));
          deadline = Deadline(kReasonSeconds);
        }
        if (peer.rest.empty() || (now < 0 && (is_late || !would_block()))) {
          shutdown(waiting[rank].fd, SHUT_WR);
          waiting[rank].fd = -1;
        }
        is_done = is_done && waiting[rank].fd < 0;
      }
      if (is_done) return;
      ::poll(waiting.data(), waiting.size(), static_cast<int>(kSleep.count()));
    }
  }

  void drop_messages() {
    for (Peer& peer : peers_) {
      if (!peer.out.empty() && peer.out.front().sent > 0) {
        const Outgoing& message = peer.out.front();
        const std::size_t of_length = std::min(message.sent, kLengthBytes);
        const auto rest = message.bytes.subspan(message.sent - of_length);
        peer.rest += message.length.substr(of_length);
        peer.rest.append(reinterpret_cast<const char*>(rest.data()), rest.size());
      }
      peer.out.clear();
      peer.in.clear();
    }
  }

  std::vector<int> pending_ranks() const {
    std::vector<int> ranks;
    for (const Peer& peer : peers_)
      if (peer.is_pending()) ranks.push_back(peer.rank);
    return ranks;
  }

  const std::shared_ptr<PeerConnector> connector_;
  const std::vector<int> members_;
  const int rank_;
  const std::string group_;
  const LinkGraph graph_;
  int groups_ = 0;           // number of groups made from this one
  Socket wake_;              // an eventfd that abort() signals
  std::mutex mutex_;         // guards what follows; released while wait() sleeps
  std::vector<Peer> peers_;  // by rank; the one of this rank has no socket
  WaitWatch watch_;
  std::string reason_;  // of abort()
};

}  // namespace

std::unique_ptr<MessageLinks> make_tcp_links(Rendezvous& rendezvous, const CommOptions& options,
                                             const LinkGraph& graph) {
  const RankInfo& info = rendezvous.info();
  const LinkGraph of_options = [sums = options.all_reduce](std::span<const int> members, int rank) {
    return sums.peers(rank, static_cast<int>(members.size()));
  };
  std::vector<int> ranks(static_cast<std::size_t>(info.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<TcpLinks>(std::make_shared<PeerConnector>(rendezvous), ranks, info.rank, "all",
                                    graph ? graph : of_options, Deadline(options.timeout_seconds));
}

std::unique_ptr<Communicator> make_tcp_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(
      std::make_unique<MessageTransport>(make_tcp_links(rendezvous, options), options.all_reduce), options);
}

}  // namespace convoy::dist
