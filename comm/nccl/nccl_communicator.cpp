// NcclCommunicator: launches NCCL collectives between two progress notes and handles failures.
#include "convoy/comm/nccl/nccl_communicator.h"

#include <stdlib.h>  // setenv is POSIX, not in <cstdlib>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/comm/core/library_versions.h"
#include "convoy/comm/nccl/nccl_handle.h"
#include "convoy/comm/nccl/nccl_watchdog.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// The number of collectives of each kind whose signatures are always compared. Ranks that run with different
/// options differ in the first steps of a program.
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
  fail<UsageError>("NCCL has no type for {}", to_string(dtype));
}

template <class T>
View bytes_of(T* values, int count) {
  return {values, {static_cast<std::int64_t>(sizeof(T)) * count}, DType::u8};
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> control, const DeviceContext& device,
                   const CommOptions& options)
      : Communicator(control->rank(), control->size(), device),
        options_(options),
        control_(std::move(control)),
        stream_(device.device().index, device.memory(), {.priority = StreamPriority::high}),
        drained_(device.device().index),
        progress_(device),
        handle_(device.device().index) {
    try {
      open();
    } catch (...) {
      give_up(std::current_exception());
      check_errors();
    }
  }

  ~NcclCommunicator() override {
    if (!finished_) abort(fmt::format("rank {} exited before finishing", rank()));
    try {
      stream_.synchronize();  // pending kernels write to progress_; the abort has ended any wait for peers
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
    std::vector<ncclUniqueId> ids(NcclHandle::ids_for(size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const int maker = size() * static_cast<int>(i) / static_cast<int>(ids.size());
      if (rank() == maker) NCCL_CHECK(ncclGetUniqueId(&ids[i]));
      control_->broadcast(bytes_of(&ids[i], 1), maker);
    }
    control_->synchronize();
    watchdog_ = std::make_unique<NcclWatchdog>(
        control_->split(0),
        NcclWatchdog::Watched{.handle = handle_, .progress = progress_, .options = options_},
        [this](std::exception_ptr found) { give_up(std::move(found), Finder::watchdog); });
    handle_.init(ids, rank(), size(), deadline(), options_.nccl_ctas);
  }

  bool is_capturing() const override { return stream_.is_capturing(); }

  void launch(const CollectiveSignature& collective, ConstView in, View out) override {
    if (failed_) return;
    guarded(collective, [&] {
      // A capture must not wait for other ranks.
      if (!is_capturing()) compare(collective);
      if (in.numel() == 0)
        return;  // NCCL launches nothing for a collective without elements, so neither does this
      progress_.note_start(stream_, collective);
      handle_.call([&](ncclComm_t comm) { return enqueue(comm, collective, in, out); }, deadline());
    });
  }

  void after_launch(const CollectiveSignature& collective) override {
    if (failed_ || collective.count == 0) return;
    guarded(collective, [&] { progress_.note_completion(stream_, collective); });
  }

  ncclResult_t enqueue(ncclComm_t comm, const CollectiveSignature& collective, ConstView in, View out) {
    const ncclDataType_t type = nccl_type(in.dtype);
    const auto sent = static_cast<std::size_t>(in.numel()), received = static_cast<std::size_t>(out.numel());
    cudaStream_t const stream = stream_.handle();
    switch (collective.op) {
      case CollectiveOp::reduce_scatter:
        return ncclReduceScatter(in.data, out.data, received, type, ncclSum, comm, stream);
      case CollectiveOp::all_gather: return ncclAllGather(in.data, out.data, sent, type, comm, stream);
      case CollectiveOp::broadcast:
        return ncclBroadcast(in.data, out.data, sent, type, collective.root, comm, stream);
      default: return ncclAllReduce(in.data, out.data, sent, type, ncclSum, comm, stream);
    }
  }

  // Collectives for which the host waits.

  void run_barrier(const CollectiveSignature& collective) override {
    run(collective, [&] {
      drain();
      control_->barrier();
    });
  }

  std::vector<std::string> run_gather_object(const CollectiveSignature& collective,
                                             const std::string& local) override {
    std::vector<std::string> texts;
    run(collective, [&] { texts = control_->gather_object(local); });
    return texts;
  }

  std::unique_ptr<Communicator> run_split(const CollectiveSignature& collective, int color) override {
    std::unique_ptr<Communicator> child;
    run(collective, [&] {
      CommOptions options = options_;
      options.monitor = nullptr;
      child = std::make_unique<NcclCommunicator>(control_->split(color), device(), options);
    });
    return child;
  }

  void run_finish(const CollectiveSignature& collective) override {
    run(collective, [&] {
      drain();
      control_->barrier();  // no GPU waits any more, so no watchdog has a question
      watchdog_->stop();
      check_errors();  // the watchdog may have found one
      control_->barrier();
      watchdog_->finish();
      control_->finish();
      handle_.destroy(deadline());
    });
    finished_ = true;
  }

  template <class F>
  void run(const CollectiveSignature& collective, const F& work) {
    check_errors();
    guarded(collective, [&] {
      compare(collective);
      work();
    });
    check_errors();
  }

  /// Runs `work`. An error in it becomes this communicator's failure and is sent to the other ranks.
  template <class F>
  void guarded(const CollectiveSignature& collective, const F& work) {
    try {
      work();
    } catch (const CaptureError&) {
      throw;  // the communicator stays usable: nothing has run
    } catch (const PeerError& error) {
      give_up(std::make_exception_ptr(
          PeerError(fmt::format("{} on {}: {}", to_string(collective), who(), error.what()))));
    } catch (const std::exception& error) {
      give_up(std::current_exception());
    }
  }

  /// Compares the signature of `collective` between ranks before the launch, and throws PeerError if they
  /// differ. Does nothing for later collectives of a kind unless CommOptions::check_always is set.
  void compare(const CollectiveSignature& collective) {
    if (++compared_[collective.op] > kComparedFirst && !options_.check_always) return;
    CollectiveSignature local = collective;
    std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(size()));
    control_->all_gather(bytes_of(&local, 1), bytes_of(by_rank.data(), size()));
    control_->synchronize();
    verify_consistency(by_rank);
  }

  /// Blocks until the stream has completed all its work. Polls instead of synchronizing, so that a failure or
  /// the timeout ends the wait, and throws PeerError for them.
  void drain() {
    stream_.record(drained_);
    std::uint64_t completed = progress_.completed();
    for (Deadline until = deadline(); !drained_.reached(); std::this_thread::sleep_for(kDrainPeriod)) {
      check_errors();
      if (const std::uint64_t now = progress_.completed(); now != completed) {
        completed = now;
        until = deadline();
      }
      if (until.passed()) fail<PeerError>("waited {} s for the work of the local GPU", until.seconds());
    }
    check_errors();  // an abort also ends the stream's work
  }

  /// The thread that found a failure. The watchdog notifies its peers without help.
  enum class Finder : std::uint8_t { this_thread, watchdog };

  /// Stores the first failure, notifies the other ranks and aborts NCCL. Later failures are ignored: they are
  /// consequences of the first.
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
    control_->abort(reason);
    if (finder != Finder::watchdog && watchdog_) watchdog_->abort(reason);
    handle_.abort();
  }

  std::string who() const { return fmt::format("rank {} of {} (nccl)", rank(), size()); }
  Deadline deadline() const { return Deadline(options_.timeout_seconds); }

  CommOptions options_;
  std::unique_ptr<Communicator> control_;
  CudaStream stream_;
  CudaEvent drained_;
  GpuProgress progress_;
  NcclHandle handle_;
  std::map<CollectiveOp, int> compared_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first one
  std::atomic<bool> failed_ = false;
  std::atomic<bool> finished_ = false;
  std::unique_ptr<NcclWatchdog> watchdog_;  // declared last: its thread uses all members above
};

}  // namespace

std::string nccl_version_text() {
  int version = 0;
  NCCL_CHECK(ncclGetVersion(&version));
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

bool nccl_supported() { return true; }

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     const DeviceContext& device,
                                                     const CommOptions& options) {
  check(device.kind() == DeviceKind::cuda, "NCCL communicator: found device {}, expected a GPU",
        device.name());
  if (std::get<std::reference_wrapper<CudaStream>>(device.stream()).get().cuda_options().deterministic) {
    // The order of a sum around a ring depends on the ranks alone. Other algorithms leave it to switches.
    static std::once_flag is_set;  // before any rank of the process lets NCCL read the environment
    std::call_once(is_set, [] { setenv("NCCL_ALGO", "Ring", 0); });
    const std::string_view algorithm = std::getenv("NCCL_ALGO");
    check(algorithm == "Ring" || algorithm == "ring",
          "NCCL communicator: found NCCL_ALGO={} with a deterministic device, expected Ring, or none",
          algorithm);
  }
  return std::make_unique<NcclCommunicator>(std::move(control), device, options);
}

void let_nccl_share_gpus(int rank) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  setenv("NCCL_HOSTID", fmt::format("{}-rank-{}", host, rank).c_str(), 0);
}

}  // namespace convoy::dist
