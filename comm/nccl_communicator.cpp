#include "comm/nccl_communicator.h"

#include <stdlib.h>  // setenv is POSIX, not in <cstdlib>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/gpu_progress.h"
#include "comm/library_versions.h"
#include "comm/nccl_check.h"
#include "comm/nccl_handle.h"
#include "comm/nccl_watchdog.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {
namespace {

/// Collectives of each kind whose fingerprints are compared in any case: those of a program's first steps, in
/// which ranks that were told different things show it.
constexpr int kComparedFirst = 32;
constexpr std::chrono::microseconds kDrainPeriod{100};

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  fail<UsageError>("NCCL has no type for {}", name_of(dtype));
}

template <class T>
View bytes_of(T* values, int count) {
  return {values, {static_cast<std::int64_t>(sizeof(T)) * count}, DType::u8};
}

/// Until the communicator of the CPU has done what it was given.
void wait_for(Communicator& control) {
  StreamEvent done(control.stream());
  done.record(control.stream());
  done.wait();
  control.check_errors();
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> control, const Device& device, const CommOptions& options)
      : Communicator(control->rank(), control->size(), device),
        options_(options),
        control_(std::move(control)),
        stream_(device.index(), device.memory(), {.priority = StreamPriority::high}),
        drained_(device.index()),
        progress_(device) {
    try {
      open();
    } catch (...) {
      give_up(std::current_exception());
      check_errors();
    }
  }

  ~NcclCommunicator() override {
    if (!finished_) abort(fmt::format("rank {} left before the end", rank()));
    try {
      stream_.synchronize();  // it writes into progress_; what waited for others has ended
    } catch (const Error&) {  // a GPU that has failed writes nothing more
    }
  }

  std::string name() const override { return "nccl"; }
  Stream stream() override { return std::ref(stream_); }

  void check_errors() override {
    if (!failed_) return;
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(failure_);
  }

  void abort(const std::string& reason) noexcept override {
    give_up(std::make_exception_ptr(PeerError(reason)));
  }

 private:
  void open() {
    ncclUniqueId id{};
    if (rank() == 0) NCCL_CHECK(ncclGetUniqueId(&id));
    control_->broadcast(bytes_of(&id, 1), 0);
    wait_for(*control_);
    watchdog_ = std::make_unique<NcclWatchdog>(
        control_->split(0),
        NcclWatchdog::Watched{.handle = handle_,
                              .progress = progress_,
                              .name = who(),
                              .timeout_seconds = options_.timeout_seconds},
        [this](std::exception_ptr found) { give_up(std::move(found), Finder::watchdog); });
    stream_.make_current();
    handle_.init(id, rank(), size(), deadline());
  }

  // Collectives on views: compared, and then launched between two notes of the GPU's progress. Without
  // elements NCCL would launch nothing.

  void launch_all_reduce(const Collective& collective, View data) override {
    launch(collective, data.numel() > 0, [&](ncclComm_t comm) {
      return ncclAllReduce(data.data, data.data, count_of(data), nccl_type(data.dtype), ncclSum, comm,
                           stream_.handle());
    });
  }

  void launch_reduce_scatter(const Collective& collective, ConstView in, View out) override {
    launch(collective, out.numel() > 0, [&](ncclComm_t comm) {
      return ncclReduceScatter(in.data, out.data, count_of(out), nccl_type(out.dtype), ncclSum, comm,
                               stream_.handle());
    });
  }

  void launch_broadcast(const Collective& collective, View data) override {
    launch(collective, data.numel() > 0, [&](ncclComm_t comm) {
      return ncclBroadcast(data.data, data.data, count_of(data), nccl_type(data.dtype), collective.root, comm,
                           stream_.handle());
    });
  }

  void launch_all_gather(const Collective& collective, ConstView in, View out) override {
    launch(collective, in.numel() > 0, [&](ncclComm_t comm) {
      return ncclAllGather(in.data, out.data, count_of(in), nccl_type(in.dtype), comm, stream_.handle());
    });
  }

  // What the host waits for.

  void run_barrier(const Collective& collective) override {
    run(collective, [&] {
      drain();
      control_->barrier();
    });
  }

  std::vector<std::string> run_gather(const Collective& collective, const std::string& mine) override {
    std::vector<std::string> texts;
    run(collective, [&] { texts = control_->gather(mine); });
    return texts;
  }

  std::unique_ptr<Communicator> run_split(const Collective& collective, int color) override {
    std::unique_ptr<Communicator> part;
    run(collective,
        [&] { part = std::make_unique<NcclCommunicator>(control_->split(color), device(), options_); });
    return part;
  }

  void run_finish(const Collective& collective) override {
    run(collective, [&] {
      drain();
      watchdog_->end();
      check_errors();  // which it may have found
      control_->finish();
      handle_.destroy(deadline());
    });
    finished_ = true;
  }

  template <class F>
  void launch(const Collective& collective, bool has_elements, const F& enqueue) {
    if (failed_) return;
    guarded(collective, [&] {
      // A recording waits for nobody.
      if (!stream_.is_capturing()) compare(collective);
      if (!has_elements) return;
      progress_.enter(stream_, collective);
      handle_.call(enqueue, deadline());
      progress_.leave(stream_, collective);
    });
  }

  template <class F>
  void run(const Collective& collective, const F& work) {
    check_errors();
    guarded(collective, [&] {
      compare(collective);
      work();
    });
    check_errors();
  }

  /// What goes wrong in `work` is this communicator's failure, and the other ranks are told.
  template <class F>
  void guarded(const Collective& collective, const F& work) {
    try {
      work();
    } catch (const CaptureError&) {
      throw;  // nothing has run, and nothing has failed
    } catch (const PeerError& error) {
      give_up(std::make_exception_ptr(
          PeerError(fmt::format("{} on {}: {}", text_of(collective), who(), error.what()))));
    } catch (const std::exception& error) {
      give_up(std::current_exception());
    }
  }

  /// Before anything is launched: ranks that do not do the same thing must not sum.
  void compare(const Collective& collective) {
    if (++compared_[collective.op] > kComparedFirst && !options_.check_always) return;
    Collective mine = collective;
    std::vector<Collective> by_rank(static_cast<std::size_t>(size()));
    control_->all_gather(bytes_of(&mine, 1), bytes_of(by_rank.data(), size()));
    wait_for(*control_);
    check_same(by_rank);
  }

  /// Until the stream has done all its work, or has failed; not by a call that only the GPU could end.
  void drain() {
    stream_.record(drained_);
    std::uint64_t left = progress_.left();
    for (Deadline until = deadline(); !drained_.reached(); std::this_thread::sleep_for(kDrainPeriod)) {
      check_errors();
      if (const std::uint64_t now = progress_.left(); now != left) {
        left = now;
        until = deadline();
      }
      if (until.passed()) fail<PeerError>("waited {} s for the GPU's own work", until.seconds());
    }
    check_errors();  // of the work that ended so
  }

  enum class Finder : std::uint8_t { this_thread, watchdog };

  /// The first failure ends everything; what follows from it is not told.
  void give_up(std::exception_ptr failure, Finder finder = Finder::this_thread) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || finished_) return;
      failure_ = failure;
      failed_ = true;
    }
    std::string reason;
    try {
      std::rethrow_exception(failure);
    } catch (const PeerError& error) {
      reason = error.what();
    } catch (const std::exception& error) {
      reason = fmt::format("rank {} failed: {}", rank(), error.what());
    }
    // The others first: the library may take its time.
    control_->abort(reason);
    if (finder != Finder::watchdog && watchdog_) watchdog_->abort(reason);
    handle_.abort();
  }

  std::string who() const { return fmt::format("rank {} of {} (nccl)", rank(), size()); }
  Deadline deadline() const { return Deadline(options_.timeout_seconds); }
  static std::size_t count_of(const ConstView& view) { return static_cast<std::size_t>(view.numel()); }

  CommOptions options_;
  std::unique_ptr<Communicator> control_;
  CudaStream stream_;
  CudaEvent drained_;
  GpuProgress progress_;
  NcclHandle handle_;
  std::map<CollectiveOp, int> compared_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first
  std::atomic<bool> failed_ = false;
  std::atomic<bool> finished_ = false;
  std::unique_ptr<NcclWatchdog> watchdog_;  // last: its thread uses all of the above
};

}  // namespace

std::string nccl_version_text() {
  int version = 0;
  NCCL_CHECK(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

bool nccl_supported() { return true; }

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     const Device& device, const CommOptions& options) {
  check(device.kind() == DeviceKind::cuda, "--comm nccl: found --device {}, expected a GPU", device.name());
  return std::make_unique<NcclCommunicator>(std::move(control), device, options);
}

void let_nccl_share_gpus(int rank) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  setenv("NCCL_HOSTID", fmt::format("{}-rank-{}", host, rank).c_str(), 0);
}

}  // namespace convoy
