// A fake communicator without peers, which records the collectives that it is asked to launch.
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/view_parts.h"

namespace convoy::testing {

/// One rank of a group of any size. Sums behave as if all peers contributed zeros: they keep this rank's
/// values. Values that peers would send are left unchanged. The stream runs inline, so a launched collective
/// is complete when the call returns.
class FakeCommunicator final : public dist::Communicator {
 public:
  struct Launch {
    dist::CollectiveSignature collective;
    const void* data;   // the sent buffer
    std::size_t bytes;  // its size
    std::chrono::steady_clock::time_point time;
  };
  /// Simulates the peers: receives each launch and its result, which it may change.
  using Peers = std::function<void(const Launch&, View data)>;

  explicit FakeCommunicator(int rank = 0, int size = 1, Peers peers = nullptr)
      : dist::Communicator(rank, size, DeviceContext::create_cpu({.threads = 1})), peers_(std::move(peers)) {}

  /// Returns the launches since construction or clear().
  const std::vector<Launch>& launches() const { return launches_; }
  void clear() { launches_.clear(); }
  /// Returns the reason passed to abort(), or "".
  const std::string& abort_reason() const { return abort_reason_; }

  std::string name() const override { return "fake"; }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override {
    if (!abort_reason_.empty()) throw PeerError(abort_reason_);
  }
  void abort(const std::string& reason) noexcept override { abort_reason_ = reason; }

 private:
  void launch(const dist::CollectiveSignature& collective, ConstView in, View out) override {
    if (collective.op == dist::CollectiveOp::reduce_scatter)
      dist::copy_view(dist::subview(in, rank() * out.numel(), out.numel()), out);
    if (collective.op == dist::CollectiveOp::all_gather)
      dist::copy_view(in, dist::subview(out, rank() * in.numel(), in.numel()));
    record(collective, in, out);
  }
  void run_barrier(const dist::CollectiveSignature& collective) override { record(collective, {}, {}); }
  std::vector<std::string> run_gather_object(const dist::CollectiveSignature& collective,
                                             const std::string& local) override {
    record(collective, {}, {});
    std::vector<std::string> texts(rank() == 0 ? static_cast<std::size_t>(size()) : 0);
    if (rank() == 0) texts.front() = local;
    return texts;
  }
  std::unique_ptr<dist::Communicator> run_split(const dist::CollectiveSignature& collective, int) override {
    record(collective, {}, {});
    return std::make_unique<FakeCommunicator>();
  }
  void run_finish(const dist::CollectiveSignature& collective) override { record(collective, {}, {}); }

  void record(const dist::CollectiveSignature& collective, ConstView sent, View data) {
    check_errors();
    launches_.push_back({.collective = collective,
                         .data = sent.data,
                         .bytes = sent.data == nullptr ? 0 : sent.bytes(),
                         .time = std::chrono::steady_clock::now()});
    if (peers_) peers_(launches_.back(), data);
  }

  Peers peers_;
  std::vector<Launch> launches_;
  std::string abort_reason_;
  CpuStream stream_{{.threads = 1}};
};

}  // namespace convoy::testing
