// A store that rank 0 keeps, at an address that all ranks know.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/socket.h"
#include "comm/store.h"
#include "comm/store_frame.h"
#include "comm/store_member.h"
#include "comm/tcp_store_server.h"

namespace convoy {

class TcpStore final : public Store {
 public:
  /// Rank 0 listens there, which throws UsageError where the port is in use; the others knock until it does.
  /// PeerError where they are refused (another job, a rank that has come already), nobody answers before the
  /// deadline, or whoever does is no rendezvous.
  TcpStore(const Endpoint& endpoint, const StoreMember& member, const Deadline& deadline);

  std::string name() const override { return "tcp://" + endpoint_.text(); }
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, const Deadline& deadline) override;

  /// This side of the first connection to rank 0, and the other.
  const std::string& local_address() const { return local_address_; }
  const std::string& address_of_rank_0() const { return remote_address_; }

 private:
  struct Connection {
    Socket socket;
    std::string in;
  };
  std::unique_ptr<Connection> connect(const Deadline& deadline);
  /// Nothing where whoever answered hung up at once.
  std::unique_ptr<Connection> say_hello(Socket socket, const Deadline& deadline);
  StoreFrame ask(const StoreFrame& question, const Deadline& deadline);

  const Endpoint endpoint_;
  const StoreMember member_;
  const std::string token_;  // which process this is, so that a second one of its rank shows
  std::string local_address_, remote_address_;
  std::unique_ptr<TcpStoreServer> server_;
  std::atomic<bool> gone_ = false;  // rank 0
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;  // after server_: it waits until this rank, too, has left
};

}  // namespace convoy
