// Point-to-point messages through TCP: one connection between each pair of ranks.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/cluster/net/peer_connector.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// MessageLinks through TCP. A message is its length in 8 bytes, little endian, and that many bytes. A length
/// of 0 announces that the rank has called abort(): the length of the reason and its text follow.
///
/// The links have no thread. The thread of the caller moves the data while it is in wait(), and sleeps until
/// a socket is ready. abort() sends its reason from the thread that calls it.
class TcpLinks final : public MessageLinks {
 public:
  /// Connects `members`, which are ranks of the job in ascending order. Collective call. `rank` is the
  /// position of this process among them, `group` the unique name of the group. PeerConnector::connect()
  /// calls `poll`. Throws PeerError that names missing ranks of the job.
  TcpLinks(std::shared_ptr<PeerConnector> connector, std::vector<int> members, int rank, std::string group,
           const Deadline& deadline, const std::function<void()>& poll = {});

  std::string name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  void wait(const Deadline& deadline) override;
  bool poll_peers() override;
  std::string new_group_name() override;
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override;
  void leave(const Deadline& deadline) override;
  void abort(const std::string& reason) noexcept override;

 private:
  static constexpr std::size_t kLengthBytes = 8;

  struct Outgoing {
    std::array<std::byte, kLengthBytes> length{};
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
    bool is_pending() const { return !out.empty() || !in.empty(); }
    bool owes_messages() const { return is_pending() || has_lost_messages; }
  };

  /// Moves data until all messages have completed. With `accepts_losses`, a lost connection completes its
  /// messages.
  void run(const Deadline& deadline, bool accepts_losses);
  /// Moves what can be moved without blocking.
  static void send_some(Peer& peer);
  static void receive_some(Peer& peer);
  /// Receives what fits a small block into peer.read. Returns whether there were any.
  static bool read_some(Peer& peer);
  /// Looks at the next bytes of a peer that owes no message: it may have failed.
  static void watch(Peer& peer);
  /// Closes the connection, and drops its messages. The error is the reason with which the peer has called
  /// abort(), if that can be found among the bytes that it has sent, otherwise `error`.
  static void lose(Peer& peer, const std::string& error);
  static std::optional<std::string> find_reason(Peer& peer);

  /// Throws the error of a lost connection, which is the reason of abort() if that rank, or another lost one,
  /// has called it. A rank that was lost without a reason, amid a message, counts a moment later: it may have
  /// exited because of the reason of another rank, which is on its way. If this rank has no messages for the
  /// lost one, it throws a second after the loss: a rank may have exited after a collective that is not
  /// complete here, but will be.
  void check_failures() const;
  /// Blocks until a connection is ready or abort() is called, for `limit` at most. Releases the lock
  /// meanwhile. Then watches the peers that owe no message.
  void sleep(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds limit);
  void send_reason();
  void drop_messages();
  std::vector<int> pending_ranks() const;

  const std::shared_ptr<PeerConnector> connector_;
  const std::vector<int> members_;
  const int rank_;
  const std::string group_;
  int groups_ = 0;           // number of groups made from this one
  Socket wake_;              // an eventfd that abort() signals
  std::mutex mutex_;         // guards what follows; released while wait() sleeps
  std::vector<Peer> peers_;  // by rank; the one of this rank has no socket
  std::string reason_;       // of abort()
};

}  // namespace convoy::dist
