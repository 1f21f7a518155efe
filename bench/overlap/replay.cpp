#include "bench/overlap/replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

/// A transport whose all-reduce takes the time of a link. Other collectives, which a step does not use, are
/// instant.
class LinkTransport final : public dist::Transport {
 public:
  explicit LinkTransport(const Link& link) : link_(link) {}

  std::string name() const override { return "emulated link"; }
  int rank() const override { return 0; }
  int size() const override { return link_.ranks; }

  void all_reduce(const Call& call, View data) override {
    const double duration_ms = link_.ms_for(data.bytes());
    const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double, std::milli>(duration_ms));
    std::unique_lock lock(mutex_);
    const bool is_aborted =
        changed_.wait_until(lock, std::min(end, call.deadline.at()), [&] { return !reason_.empty(); });
    if (is_aborted) throw PeerError(reason_);
    if (end > call.deadline.at())
      fail<PeerError>("the all-reduce takes {:.1f} s on the emulated link, more than the time limit of {} s",
                      duration_ms * 1e-3, call.deadline.seconds());
  }
  void reduce_scatter(const Call&, ConstView in, View out) override {
    dist::copy_view(dist::subview(in, 0, out.numel()), out);
  }
  void broadcast(const Call&, View) override {}
  void all_gather(const Call&, ConstView in, View out) override {
    dist::copy_view(in, dist::subview(out, 0, in.numel()));
  }
  void barrier(const Call&) override {}
  std::vector<std::string> gather_object(const Call&, const std::string& local) override {
    std::vector<std::string> texts(static_cast<std::size_t>(link_.ranks));
    texts.front() = local;
    return texts;
  }
  std::unique_ptr<dist::Transport> split(const Call&, int) override {
    return std::make_unique<LinkTransport>(link_);
  }
  bool poll_peers() override { return false; }
  void finish(const Call&) override {}
  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason;
    changed_.notify_all();
  }

 private:
  using Clock = dist::Deadline::Clock;

  Link link_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string reason_;
};

}  // namespace

std::unique_ptr<dist::Communicator> make_link_communicator(const Link& link) {
  return std::make_unique<dist::CpuCommunicator>(std::make_unique<LinkTransport>(link));
}

LinkSteps::LinkSteps(const StepChoice& choice, const DeviceContext& device)
    : alone_(choice, device), linked_(choice, device) {
  check(device.kind() == DeviceKind::cpu, "--real: found --device {}, expected cpu", device.name());
}

RealExposure LinkSteps::measure(int steps, const dist::BucketPlan& plan, DType sent, const Link& link) {
  const std::unique_ptr<dist::Communicator> comm = make_link_communicator(link);
  dist::GradientSynchronizer gradients(linked_.parameters(), *comm,
                                       {.grad_dtype = sent, .plan = plan.text()});
  std::vector<double> waited, longer;
  for (int i = 0; i <= steps; ++i) {
    alone_.run();
    linked_.run(&gradients);
    if (i == 0) continue;  // warm-up
    waited.push_back(linked_.exposed_ms());
    longer.push_back(linked_.step_ms() - alone_.step_ms());
  }
  comm->finish();
  return {.waited_ms = median(waited), .longer_ms = median(longer)};
}

}  // namespace convoy::bench
