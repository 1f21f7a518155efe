// The server of a TCP key-value store: a table of keys and values, and a thread that serves it.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store_frame.h"

namespace convoy::dist {

/// The claim of a client in its handshake.
constexpr const char* kStoreClaim = "store";

/// Serves a key-value store to the ranks of one job. Clients are untrusted. The server disconnects clients
/// that do not know the secret, that send invalid messages, that set the keys of other ranks, and that do not
/// identify themselves within 5 s. No client can block it, and the memory that clients can make it use is
/// bounded. Refuses clients with the reason if the process has no file descriptor left.
class TcpStoreServer {
 public:
  /// Starts the thread. Takes ownership of `listener`.
  TcpStoreServer(Socket listener, int world_size, std::string job, std::string secret);
  /// Stops accepting clients and serves the connected ones until they disconnect, for one second at most. A
  /// rank may finish its last exchange first, while other ranks still wait for replies.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    Socket socket;
    Handshake handshake;
    std::string in, out;
    Clock::time_point connected_at;
    int rank = -1;                   // -1 before the hello message
    bool waits = false;              // for `key`
    bool close_after_reply = false;  // set for refused clients
    std::string key;
    Clock::time_point wait_until;
  };

  void serve();
  void accept_clients();
  /// Accepts a client with the spare descriptor, and refuses it.
  void refuse_client();
  // read(), write() and answer() return false if the client is to be disconnected.
  bool read(Client& client);
  bool write(Client& client);
  bool answer(Client& client, const StoreFrame& frame);
  /// Continues the handshake with what has been received. Returns false if the client is to be disconnected.
  static bool identify(Client& client);
  /// Returns an empty string if the client is admitted, otherwise the reason for the refusal.
  std::string admit(const StoreFrame& hello, Client& client);
  void answer_waiting_clients();
  void close_unidentified_clients();
  Clock::time_point next_event() const;

  Socket listener_;
  Socket wake_;
  Socket spare_;                         // a descriptor that is closed when no other one is left
  Clock::time_point accept_again_at_{};  // after all descriptors were in use
  const int world_size_;
  const std::string job_, secret_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;              // total size of keys and values
  std::map<int, std::string> tokens_;  // by rank, of the process that joined first
  std::list<Client> clients_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // destroyed first: it uses all other members
};

}  // namespace convoy::dist
