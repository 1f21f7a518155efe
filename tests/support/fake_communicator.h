// A communicator without other ranks, which writes down what it is asked to do.
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/view_parts.h"

namespace convoy::testing {

/// One rank of as many as a test likes. Collectives run as if the others had only zeros to give: sums leave
/// the rank's own values, and what others would send is left as it was. The stream works inline, so what is
/// launched has happened.
class FakeCommunicator final : public Communicator {
 public:
  struct Launch {
    Collective collective;
    const void* data;   // that is sent
    std::size_t bytes;  // of it
    std::chrono::steady_clock::time_point time;
  };
  /// Plays the other ranks: sees each launch, and its data after it, which it may change.
  using Others = std::function<void(const Launch&, View data)>;

  explicit FakeCommunicator(int rank = 0, int size = 1, Others others = nullptr)
      : Communicator(rank, size, Device::cpu({.threads = 1})), others_(std::move(others)) {}

  const std::vector<Launch>& launches() const { return launches_; }
  void clear() { launches_.clear(); }
  const std::string& abort_reason() const { return abort_reason_; }

  std::string name() const override { return "fake"; }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override {
    if (!abort_reason_.empty()) throw PeerError(abort_reason_);
  }
  void abort(const std::string& reason) noexcept override { abort_reason_ = reason; }

 private:
  void launch_all_reduce(const Collective& collective, View data) override { launch(collective, data, data); }
  void launch_broadcast(const Collective& collective, View data) override { launch(collective, data, data); }
  void launch_reduce_scatter(const Collective& collective, ConstView in, View out) override {
    copy_view(part_of(in, rank() * out.numel(), out.numel()), out);
    launch(collective, in, out);
  }
  void launch_all_gather(const Collective& collective, ConstView in, View out) override {
    copy_view(in, part_of(out, rank() * in.numel(), in.numel()));
    launch(collective, in, out);
  }
  void run_barrier(const Collective& collective) override { launch(collective, {}, {}); }
  std::vector<std::string> run_gather(const Collective& collective, const std::string& mine) override {
    launch(collective, {}, {});
    std::vector<std::string> texts(rank() == 0 ? static_cast<std::size_t>(size()) : 0);
    if (rank() == 0) texts.front() = mine;
    return texts;
  }
  std::unique_ptr<Communicator> run_split(const Collective& collective, int) override {
    launch(collective, {}, {});
    return std::make_unique<FakeCommunicator>();
  }
  void run_finish(const Collective& collective) override { launch(collective, {}, {}); }

  void launch(const Collective& collective, ConstView sent, View data) {
    check_errors();
    launches_.push_back({.collective = collective,
                         .data = sent.data,
                         .bytes = sent.data == nullptr ? 0 : sent.bytes(),
                         .time = std::chrono::steady_clock::now()});
    if (others_) others_(launches_.back(), data);
  }

  Others others_;
  std::vector<Launch> launches_;
  std::string abort_reason_;
  CpuStream stream_{{.threads = 1}};
};

}  // namespace convoy::testing
