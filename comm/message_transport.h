// Collectives made of messages: the same for every library that carries them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/message_links.h"
#include "comm/transport.h"

namespace convoy {

/// Every collective begins with an exchange of fingerprints, which is also what a missing rank shows by.
/// Sums: each rank gets everybody's part of its share, adds them in the order of ranks, and gives the sum to
/// all. (A library's own all-reduce adds in an order of its own, which changes with its version, the size and
/// the number of ranks, knows no bf16, and cannot say who is missing.)
class MessageTransport final : public Transport {
 public:
  explicit MessageTransport(std::unique_ptr<MessageLinks> links) : links_(std::move(links)) {}

  std::string name() const override { return links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override { links_->start(); }
  void all_reduce(const Call& call, View data) override;
  void reduce_scatter(const Call& call, ConstView in, View out) override;
  void broadcast(const Call& call, View data) override;
  void all_gather(const Call& call, ConstView in, View out) override;
  void barrier(const Call& call) override { enter(call); }
  std::vector<std::string> gather(const Call& call, const std::string& mine) override;
  std::unique_ptr<Transport> split(const Call& call, int color) override;
  void finish(const Call& call) override;
  void abort(const std::string& reason) noexcept override { links_->abort(reason); }

 private:
  void enter(const Call& call);
  void send(int to, const ConstView& view);
  void receive(int from, const View& view);
  /// Begins to receive everybody's part of a share into scratch memory; mine lies there already. By rank.
  std::vector<ConstView> receive_parts(const ConstView& mine);
  template <class F>
  void for_each_other(F&& f) const;

  std::unique_ptr<MessageLinks> links_;
  std::vector<char> scratch_;
};

}  // namespace convoy
