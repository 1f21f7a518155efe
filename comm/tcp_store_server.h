// The side of a TCP store that rank 0 keeps: a table of keys and values, and a thread that serves it.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/socket.h"
#include "comm/store_frame.h"

namespace convoy {

/// Anybody may connect: what is no message of this job's ranks is hung up on, who says nothing is hung up on
/// soon, and nobody is waited for. All memory that clients can make it use is bounded.
class TcpStoreServer {
 public:
  TcpStoreServer(Socket listener, int world, std::string job);
  /// Takes no new clients, and serves those that are there until they have left: a rank that is done with its
  /// last meeting may be the first, and must not pull the answers away from the others. Soon ends all the
  /// same.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Client {
    Socket socket;
    std::string in, out;
    Clock::time_point since;
    int rank = -1;        // until it has said hello
    bool waits = false;   // for a key
    bool leaves = false;  // as soon as it has been told
    std::string key;
    Clock::time_point until;
  };

  void serve();
  void accept_clients();
  /// False where the client is to be hung up on.
  bool read(Client& client);
  bool write(Client& client);
  bool answer(Client& client, const StoreFrame& frame);
  std::string welcome(const StoreFrame& hello, Client& client);
  void answer_the_waiting();
  void hang_up_on_the_silent();
  Clock::time_point next_event() const;

  Socket listener_;
  Socket wake_;
  const int world_;
  const std::string job_;
  std::map<std::string, std::string> values_;
  std::size_t bytes_ = 0;            // of all values
  std::map<int, std::string> came_;  // a rank's token
  std::list<Client> clients_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace convoy
