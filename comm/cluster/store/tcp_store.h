// A TCP key-value store, through which processes find each other: its client, and on rank 0 its server.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store_frame.h"
#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// The claim of a client in its handshake.
constexpr const char* kStoreClaim = "store";

/// The key of the reason with which the first rank fails.
constexpr const char* kFailureKey = "failure";
/// The number of handshakes with the server that have failed. Only the server sets the key.
constexpr const char* kRefusedKey = "refused";

/// The identity with which a rank joins a store.
struct StoreMember {
  int rank = 0;
  int world_size = 1;
  /// The name of the job, equal on all ranks; empty if it has none.
  std::string job;
};

/// Where a rank looks for rank 0.
struct StorePlace {
  std::vector<Endpoint> endpoints;
  std::string secret;   // of the store
  std::string missing;  // why there is no endpoint yet
  /// No other job has the secret: who knows it is rank 0, and a refusal is final.
  bool is_own_secret = false;
};

/// A key-value store of small strings that all ranks of a job share, and rank 0 serves. Thread-safe. Each connection
/// begins with a Handshake that proves that both sides have the same secret.
class TcpStore {
 public:
  /// The default time for the process that serves the store to answer, in seconds.
  static constexpr double kAnswerSeconds = 5;

  /// Starts the server on rank 0, and connects to it on all ranks; retries until the deadline. Throws
  /// UsageError on rank 0 if the port is in use, and on all ranks if CONVOY_SECRET is too short. Throws
  /// PeerError if this rank is refused (another secret, another job, or a rank that has already joined), if
  /// the server does not answer before the deadline, or if the peer does not speak the protocol.
  ///
  /// If the port is in use, rank 0 listens at the first free one of `other_ports`. The other ranks try all of
  /// these ports in turn until the deadline, since another job or program may refuse them at the ports
  /// before. With an empty host and port 0, rank 0 listens at a free port of all interfaces.
  TcpStore(const Endpoint& endpoint, const StoreMember& member, const Deadline& deadline,
           const std::vector<int>& other_ports = {}, const std::string& secret = job_secret());
  /// Connects to rank 0 at the places that `find` returns before each attempt. `name` is for messages. Throws as above.
  TcpStore(const std::string& name, const std::function<StorePlace()>& find, const StoreMember& member,
           const Deadline& deadline);

  /// Returns the location for messages, such as "tcp://10.0.0.1:29500".
  std::string name() const { return name_.empty() ? "tcp://" + endpoint_.text() : name_; }

  /// Sets `key`, which ends with "/" and this rank, or is kFailureKey: no rank can write the keys of another one. The
  /// first value of a key is kept; later calls have no effect. Throws UsageError if the key belongs to another
  /// rank, or if the key or value is too long. Throws PeerError if the store is lost, or does not answer
  /// within `answer_seconds`.
  void set(const std::string& key, const std::string& value, double answer_seconds = kAnswerSeconds);
  /// Blocks until `key` has been set, and returns its value; nullopt after the deadline. Throws PeerError if
  /// the store is lost, or does not answer within `answer_seconds` after the deadline.
  std::optional<std::string> get(const std::string& key, const Deadline& deadline,
                                 double answer_seconds = kAnswerSeconds);
  /// Sets the key "what/rank" of this rank to `local`, blocks until all ranks have done so, and returns their values;
  /// nullopt after the deadline, or earlier if a rank has set kFailureKey. Makes one request, so that a rank's part of
  /// an exchange does not grow with the number of ranks. Throws as set() and get() do.
  std::optional<std::vector<std::string>> gather(const std::string& what, const std::string& local,
                                                 const Deadline& deadline,
                                                 double answer_seconds = kAnswerSeconds);
  /// Returns the ranks that have not set their key "what/rank", in ascending order. Throws as get() does.
  std::vector<int> missing(const std::string& what);

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
  /// Starts the server at the first of these places that is free, and returns that.
  Endpoint serve(const std::vector<Endpoint>& places);
  /// Connects to rank 0 at one of the places that `find` returns, which becomes `endpoint_`.
  void connect(const std::function<StorePlace()>& find, const Deadline& deadline);
  /// Performs the handshake and joins. Returns null if the peer closed the connection or did not answer.
  /// Throws PeerError if it refused this rank; Refused, if it has the secret.
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

  const std::string name_;
  Endpoint endpoint_;  // constant after the construction, as is the secret
  const StoreMember member_;
  std::string secret_;
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
