// Point-to-point messages through gloo: one TCP connection between each pair of ranks.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/bootstrap/store/store.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// MessageLinks through gloo's unbound buffers.
class GlooLinks final : public MessageLinks {
 public:
  /// Creates gloo's device, whose thread moves the data of any number of groups. `address` is the address at
  /// which other ranks reach this host; if empty, gloo resolves the host name. GLOO_SOCKET_IFNAME takes
  /// precedence. Throws UsageError if gloo cannot use the address or interface.
  static std::shared_ptr<gloo::transport::Device> open_device(const std::string& address);

  /// Connects all ranks of the group. Collective call. `store` is not owned and must outlive the links; a
  /// group of one rank does not use it. `group` is a unique name. Throws PeerError that names missing ranks.
  GlooLinks(Store* store, std::shared_ptr<gloo::transport::Device> device, int rank, int size,
            std::string group, const Deadline& deadline);
  ~GlooLinks() override;

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void start() override;
  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  void wait(const Deadline& deadline) override;
  std::string new_group_name() override;
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override;
  void leave(const Deadline& deadline) override;
  void abort(const std::string& reason) noexcept override;

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  struct Pending {
    Buffer buffer;
    int other;
    bool receives;
    std::string error;  // set if the message could not be started
  };

  std::string key_of(const std::string& what, int rank) const;
  void connect(const Deadline& deadline);
  std::vector<std::string> exchange_addresses(const std::string& local, const Deadline& deadline);
  void begin(int other, void* data, std::size_t bytes, bool receives);
  /// Blocks until the message has completed or failed. Returns the error; an empty string for success.
  std::string complete(const Pending& pending, const Deadline& deadline);
  bool is_disconnected(int other);
  /// Throws PeerError for the failed message pending_[at]. All earlier messages have completed.
  [[noreturn]] void throw_wait_error(std::size_t at, const std::string& error, const Deadline& deadline);
  void interrupt_waits();
  /// Runs `work` with periodic interruptions of gloo's waits. Afterwards, also if it throws, gloo no longer
  /// accesses the memory of pending messages: the caller may free it.
  template <class F>
  void while_waiting(F&& work);

  Store* store_;
  std::shared_ptr<gloo::transport::Device> device_;
  const int rank_;
  const int size_;
  const std::string group_;
  std::shared_ptr<gloo::transport::Context> context_;
  // gloo reports a lost connection to the waiting thread, unless part of the message has been transferred
  // already. So each rank also expects a message that is never sent, the sentinel, and checks its state
  // periodically.
  std::byte never_{};
  std::vector<Buffer> sentinels_;               // by rank
  std::vector<std::uint64_t> sent_, received_;  // number of messages by rank: the slot of the latest one
  int groups_ = 0;                              // number of groups made from this one
  std::mutex mutex_;
  std::vector<Pending> pending_;
  std::string reason_;  // of abort()
  bool waiting_ = false;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread interrupter_;  // gloo's waits end only on completion, timeout or interruption by another thread
};

}  // namespace convoy::dist
