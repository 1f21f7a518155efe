// A TCP key-value store: its client, and on rank 0 its server.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store.h"
#include "convoy/comm/cluster/store/store_frame.h"

namespace convoy::dist {

/// The claim of a client in its handshake.
constexpr const char* kStoreClaim = "store";

/// A Store that rank 0 serves at an address that all ranks know. Each connection begins with a Handshake that
/// proves that both sides have the same CONVOY_SECRET.
class TcpStore final : public Store {
 public:
  /// Starts the server on rank 0, and connects to it on all ranks; retries until the deadline. Throws
  /// UsageError on rank 0 if the port is in use, and on all ranks if CONVOY_SECRET is too short. Throws
  /// PeerError if this rank is refused (another secret, another job, or a rank that has already joined), if
  /// the server does not answer before the deadline, or if the peer does not speak the protocol.
  ///
  /// If the port is in use, rank 0 listens at the first free one of `other_ports`. The other ranks try all of
  /// these ports in turn until the deadline, since another job or program may refuse them at the ports
  /// before.
  TcpStore(const Endpoint& endpoint, const StoreMember& member, const Deadline& deadline,
           const std::vector<int>& other_ports = {});

  std::string name() const override { return "tcp://" + endpoint_.text(); }
  void set(const std::string& key, const std::string& value, double answer_seconds = kAnswerSeconds) override;
  std::optional<std::string> get(const std::string& key, const Deadline& deadline,
                                 double answer_seconds = kAnswerSeconds) override;
  /// Makes one request, so that a rank's part of an exchange does not grow with the number of ranks.
  std::optional<std::vector<std::string>> gather(const std::string& what, const std::string& local,
                                                 const Deadline& deadline,
                                                 double answer_seconds = kAnswerSeconds) override;

  std::vector<int> missing(const std::string& what) override;

  /// Returns the address and port of rank 0.
  const Endpoint& endpoint() const { return endpoint_; }
  /// Returns the numeric address of this side of the first connection to rank 0.
  const std::string& local_address() const { return local_address_; }
  /// Returns the numeric address of rank 0's side of the first connection.
  const std::string& address_of_rank_0() const { return remote_address_; }

 private:
  struct Connection {
    Socket socket;
    std::string in;
  };
  /// Starts the server at the first of these ports that is free.
  void serve(const std::vector<int>& ports);
  /// Connects to rank 0 at one of these ports, and makes it that of the endpoint.
  std::unique_ptr<Connection> connect(const std::vector<int>& ports, const Deadline& deadline);
  /// Performs the handshake and joins. Returns null if the peer closed the connection or did not answer.
  /// Throws PeerError if it refused this rank.
  std::unique_ptr<Connection> say_hello(Socket socket, const Deadline& deadline);
  /// Returns the reply to a request. If the connection has closed, connects again, once: a router may have
  /// dropped an idle connection. Throws PeerError if rank 0 refuses that, which means that it has exited, or
  /// does not reply before the deadline.
  StoreFrame ask(const StoreFrame& question, const Deadline& deadline);
  /// Asks for values that may have to be waited for; `suffix` follows the timeout. The server enforces the timeout. The
  /// client waits for `answer_seconds` longer, so that no reply is lost.
  std::optional<std::string> ask_for_value(StoreFrame::Kind kind, const std::string& key,
                                           const std::string& suffix, const Deadline& deadline,
                                           double answer_seconds);

  Endpoint endpoint_;  // constant after the construction
  const StoreMember member_;
  const std::string secret_;
  const std::string
      token_;  // identifies this process, so the server detects a second process with the same rank
  std::string local_address_, remote_address_;
  std::shared_ptr<void> server_;       // of rank 0
  std::atomic<bool> is_lost_ = false;  // set when rank 0 has exited
  std::mutex mutex_;
  // Destroyed before server_, whose destructor waits until this rank, too, has disconnected.
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace convoy::dist
