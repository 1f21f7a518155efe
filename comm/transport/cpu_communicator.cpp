#include "convoy/comm/transport/cpu_communicator.h"

#include <utility>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

class SelfTransport final : public Transport {
 public:
  std::string name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce(const Call&, View) override {}
  void reduce_scatter(const Call&, ConstView in, View out) override { copy_view(in, out); }
  void broadcast(const Call&, View) override {}
  void all_gather(const Call&, ConstView in, View out) override { copy_view(in, out); }
  void barrier(const Call&) override {}
  std::vector<std::string> gather_object(const Call&, const std::string& local) override { return {local}; }
  std::unique_ptr<Transport> split(const Call&, int) override { return std::make_unique<SelfTransport>(); }
  bool poll_peers() override { return false; }
  void finish(const Call&) override {}
  void abort(const std::string&) noexcept override {}  // no call blocks
};

}  // namespace

// One thread is enough: sums are limited by memory bandwidth, and the other cores compute meanwhile.
CpuCommunicator::CpuCommunicator(std::unique_ptr<Transport> transport, const CommOptions& options)
    : Communicator(transport->rank(), transport->size(), DeviceContext::create_cpu({.threads = 1})),
      options_(options),
      transport_(std::move(transport)),
      stream_({.threads = 1, .own_thread = true}) {
  set_monitor(std::exchange(options_.monitor, nullptr));
  stream_.submit([this] { transport_->start(); });
}

CpuCommunicator::~CpuCommunicator() {
  if (!finished_) abort(fmt::format("rank {} exited before finishing", rank()));
}

void CpuCommunicator::check_errors() {
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

bool CpuCommunicator::poll_peers() {
  bool waits = false;
  stream_.submit([&] {
    if (failed_) return;
    try {
      waits = transport_->poll_peers();
    } catch (const PeerError& error) {
      transport_->abort(error.what());
      fail_with(std::current_exception());
    }
  });
  stream_.synchronize();
  check_errors();
  return waits;
}

void CpuCommunicator::abort(const std::string& reason) noexcept {
  fail_with(std::make_exception_ptr(PeerError(reason)));
  transport_->abort(reason);
}

void CpuCommunicator::fail_with(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  failed_ = true;
}

void CpuCommunicator::submit(const CollectiveSignature& collective,
                             std::function<void(const Transport::Call&)> work) {
  stream_.submit(
      [this, collective, work = std::move(work), monitor = monitor(), seconds = options_.timeout_seconds] {
        if (failed_) return;
        if (monitor) monitor->started(collective);
        // Notifies the other ranks first: the views of the collective stay allocated until the failure is
        // known.
        const auto give_up = [&](std::exception_ptr failure, const char* reason) {
          transport_->abort(reason);
          fail_with(std::move(failure));
        };
        CallProgress progress(monitor.get());
        try {
          work({.collective = collective,
                .deadline = Deadline(seconds, options_.deadline_floor.get(), &progress)});
          if (monitor) monitor->completed(collective);
        } catch (const PeerError& error) {
          const std::string whole = fmt::format("{} on rank {} of {} ({}): {}", to_string(collective), rank(),
                                                size(), transport_->name(), error.what());
          const bool is_cause = dynamic_cast<const CorruptionError*>(&error) != nullptr;
          const bool is_forwarded = dynamic_cast<const ForwardedError*>(&error) != nullptr;
          give_up(is_cause ? std::make_exception_ptr(CorruptionError(whole))
                           : std::make_exception_ptr(PeerError(whole)),
                  is_forwarded ? error.what() : whole.c_str());
        } catch (const std::exception& error) {
          const std::string reason =
              fmt::format("rank {} failed in {}: {}", rank(), to_string(collective), error.what());
          give_up(std::current_exception(), reason.c_str());
        }
      });
}

void CpuCommunicator::run(const CollectiveSignature& collective,
                          std::function<void(const Transport::Call&)> work) {
  submit(collective, std::move(work));
  stream_.synchronize();
  check_errors();
}

void CpuCommunicator::launch(const CollectiveSignature& collective, ConstView in, View out) {
  submit(collective, [this, in, out](const Transport::Call& call) {
    switch (call.collective.op) {
      case CollectiveOp::reduce_scatter: return transport_->reduce_scatter(call, in, out);
      case CollectiveOp::all_gather: return transport_->all_gather(call, in, out);
      case CollectiveOp::broadcast: return transport_->broadcast(call, out);
      default: return transport_->all_reduce(call, out);
    }
  });
}

void CpuCommunicator::run_barrier(const CollectiveSignature& collective) {
  run(collective, [this](const Transport::Call& call) { transport_->barrier(call); });
}

std::vector<std::string> CpuCommunicator::run_gather_object(const CollectiveSignature& collective,
                                                            const std::string& local) {
  std::vector<std::string> texts;
  run(collective, [&](const Transport::Call& call) { texts = transport_->gather_object(call, local); });
  return texts;
}

std::unique_ptr<Communicator> CpuCommunicator::run_split(const CollectiveSignature& collective, int color) {
  std::unique_ptr<Transport> part;
  run(collective, [&](const Transport::Call& call) { part = transport_->split(call, color); });
  return std::make_unique<CpuCommunicator>(std::move(part), options_);
}

void CpuCommunicator::run_finish(const CollectiveSignature& collective) {
  run(collective, [this](const Transport::Call& call) { transport_->finish(call); });
  finished_ = true;
}

std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(std::make_unique<SelfTransport>(), options);
}

}  // namespace convoy::dist
