// Messages through gloo: a TCP connection between each two ranks.
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

#include "comm/message_links.h"
#include "comm/store.h"

namespace convoy {

class GlooLinks final : public MessageLinks {
 public:
  /// A thread that moves the bytes, on the connections of any number of groups. `address`: where others reach
  /// this host, "" to let its name say so.
  static std::shared_ptr<gloo::transport::Device> open_device(const std::string& address);

  /// Every rank of the group, together. The store, which a group of one does without, outlives the links.
  /// PeerError for who has not come.
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
  struct Begun {
    Buffer buffer;
    int other;
    bool receives;
    std::string error;  // where it could not even begin
  };

  std::string key_of(const std::string& what, int rank) const;
  void connect(const Deadline& deadline);
  std::vector<std::string> exchange_addresses(const std::string& mine, const Deadline& deadline);
  void begin(int other, void* data, std::size_t bytes, bool receives);
  /// Until it has ended: what went wrong, or nothing.
  std::string end_of(const Begun& begun, const Deadline& deadline);
  bool has_hung_up(int other);
  /// Of begun_: all before it has ended.
  [[noreturn]] void fail_waiting(std::size_t at, const std::string& error, const Deadline& deadline);
  void interrupt_waits();
  /// With interruptions. After it, gloo touches no memory of what has begun: also where it throws, since the
  /// memory may go with the error.
  template <class F>
  void while_waiting(F&& work);

  Store* store_;
  std::shared_ptr<gloo::transport::Device> device_;
  const int rank_;
  const int size_;
  const std::string group_;
  std::shared_ptr<gloo::transport::Context> context_;
  // gloo tells those who wait for a message that its connection has gone, unless part of the message has come
  // or left already. So each rank expects a message that never comes, and looks now and then how that goes.
  std::byte never_{};
  std::vector<Buffer> sentinels_;               // by rank
  std::vector<std::uint64_t> sent_, received_;  // messages to and from each rank, which are their slots
  int groups_ = 0;                              // made of this one
  std::mutex mutex_;
  std::vector<Begun> begun_;
  std::string reason_;  // to give up
  bool waiting_ = false;
  bool ending_ = false;
  std::condition_variable changed_;
  std::thread interrupter_;  // gloo's waits cannot be cut short but by giving up, or from outside
};

}  // namespace convoy
