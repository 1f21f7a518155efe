// Connections between the ranks of a job: each rank listens on one port, and the others connect to it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// Opens TCP connections between ranks. Both sides of each connection prove with a Handshake that they belong
/// to the job. The key is derived from CONVOY_SECRET and from a random number of rank 0, which the exchange
/// carries to the other ranks. Thread-safe: several threads of a rank may connect different groups at the
/// same time.
class PeerConnector {
 public:
  /// A connection after its handshake.
  struct Connection {
    Socket socket;
    std::string received;  // bytes that the peer has sent since
  };

  /// Listens on a free port, and exchanges the addresses. Collective call. Listens on the loopback interface
  /// if all ranks are on one host, else on the interface of CONVOY_INTERFACE or of RankInfo::address, else on
  /// all interfaces. A rank with `listens` = false accepts no connections. Throws UsageError if there is no
  /// such interface.
  explicit PeerConnector(Rendezvous& rendezvous, bool listens = true);

  /// Connects to the ranks `to`, which are lower than this one, and accepts connections of the ranks `from`,
  /// which are higher. Returns the connections by rank. `group` is a unique name of up to 128 characters,
  /// without spaces; the other ranks call connect() with the same one. Calls `poll`, unless it is empty,
  /// about ten times a second; an exception from it ends the wait. Throws PeerError that names the missing
  /// ranks.
  std::map<int, Connection> connect(const std::string& group, std::span<const int> to,
                                    std::span<const int> from, const Deadline& deadline,
                                    const std::function<void()>& poll = {});

 private:
  /// A connection that has been accepted, and its handshake.
  struct Stranger {
    Connection connection;
    Handshake handshake;
    Deadline end;
  };
  using Key = std::pair<std::string, int>;  // group and rank of an accepted connection

  Connection connect_to(int rank, const std::string& group, const Deadline& deadline,
                        const std::function<void()>& poll);
  /// Accepts waiting connections and continues their handshakes, without blocking.
  void accept_waiting_peers();
  /// Returns whether the stranger stays one.
  bool advance(Stranger& stranger);
  /// Blocks until there may be something to accept, for 50 ms at most.
  void wait_for_peers();
  /// Returns an empty string if the claim of a peer is acceptable, otherwise what is wrong.
  std::string judge(const std::string& claim) const;

  const int rank_;
  const std::vector<RankInfo> all_;
  std::string secret_;
  Socket listener_;
  std::vector<std::vector<std::string>> addresses_;  // by rank
  std::vector<int> ports_;                           // by rank; 0 for a rank that does not listen
  std::mutex mutex_;                                 // guards the next three
  std::vector<Stranger> strangers_;
  std::map<Key, Connection> accepted_;
  std::string accept_error_;  // of the last attempt to accept a connection
};

}  // namespace convoy::dist
