#include "convoy/datasets/loader/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "convoy/datasets/loader/batch_maker.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy::data {
namespace {

constexpr std::int64_t kEpochLimit = 1 << 24;  // the limit of Random

LoaderOptions checked(const ImageSet& set, LoaderOptions options) {
  const Tensor& images = set.images;
  if (set.source) {
    check(
        !options.resident && !options.balance.defined() && set.size() < std::int64_t{1} << 31,
        "loader: {} images that are not in memory, {} and {}, expected fewer than 2^31, neither resident nor balanced",
        set.size(), options.resident ? "resident" : "not resident",
        options.balance.defined() ? "balanced" : "not balanced");
  } else {
    check(images.defined() && set.labels.defined(), "loader: the set has no images or no labels");
    check(images.dtype() == DType::u8 && images.shape().rank() == 4 && images.size(3) <= 4 &&
              images.context().kind() == DeviceKind::cpu,
          "loader: images {} {} on {}, expected u8 [N, H, W, C] on the cpu, C at most 4",
          to_string(images.dtype()), images.shape().text(), images.context().name());
    check(set.labels.dtype() == DType::i32 && set.labels.shape() == Shape{set.size()},
          "loader: labels {} {}, expected i32 [{}]", to_string(set.labels.dtype()), set.labels.shape().text(),
          set.size());
  }
  const bool on_gpu = options.device && options.device->kind() == DeviceKind::cuda;
  check(is_floating(options.dtype) && (on_gpu || options.dtype != DType::f16),
        "loader: batches of {} on {}, expected f32, f64 or bf16, or on a GPU also f16",
        to_string(options.dtype), (options.device ? options.device->name() : std::string("cpu")));
  check_option(options.global_batch >= 1, "LoaderOptions::global_batch", "found {}, expected 1 or more",
               options.global_batch);
  check_option(options.micro_batch >= 0, "LoaderOptions::micro_batch", "found {}, expected 0 or more",
               options.micro_batch);
  check(options.world_size >= 1 && 0 <= options.rank && options.rank < options.world_size,
        "loader: rank {} of {}, expected 0 to {}", options.rank, options.world_size, options.world_size - 1);
  check_option(0 <= options.workers && options.workers <= 256, "LoaderOptions::workers",
               "found {}, expected 0 to 256", options.workers);
  check(options.prefetch >= 1, "loader: prefetch {}, expected 1 or more", options.prefetch);
  check_option(options.max_epochs <= kEpochLimit, "LoaderOptions::max_epochs",
               "found {}, expected at most {}", options.max_epochs, kEpochLimit);
  check(!options.resident || on_gpu, "loader: found resident images on {}, expected a GPU",
        options.device ? options.device->name() : std::string("no device"));
  check(options.resident || !options.defer_images,
        "loader: found defer_images without resident, expected both");
  if (const Tensor& resident = options.resident_images; resident.defined())
    check(options.resident && resident.dtype() == DType::u8 && resident.shape() == images.shape() &&
              resident.context() == *options.device,
          "loader: resident images {} {} on {}, expected u8 {} on the loader's GPU",
          to_string(resident.dtype()), resident.shape().text(), resident.context().name(),
          images.shape().text());
  check(!options.balance.defined() || (options.shuffle && options.balance.dtype() == DType::i32 &&
                                       options.balance.numel() == set.size()),
        "loader: found balance {} without shuffle, or of other samples, expected i32 [{}] and shuffle alone",
        options.balance.defined() ? options.balance.shape().text() : "", set.size());
  check(
      !options.resident || !options.transform.original.enabled(),
      "loader: found views of original images with resident images, expected one of them: the CPU decodes them");
  check_option(
      !options.transform.original.enabled() || set.decode || set.source, "AugmentOptions",
      "found original-crop or rotation, and images without files of their own, expected a directory of images");
  options.transform.check_image_shape(set.shape()[1], set.shape()[2], set.shape()[3]);
  return options;
}

/// Worker threads and a ring buffer of their batches. The batch of task t is stored in slot t % capacity. A
/// task starts only after the previous batch of its slot was taken, which bounds the memory.
class Prefetcher {
 public:
  Prefetcher(const BatchMaker& maker, const TaskSequence& sequence, int workers, int capacity)
      : maker_(maker), sequence_(sequence), slots_(static_cast<std::size_t>(capacity)) {
    for (int i = 0; i < workers; ++i) workers_.emplace_back([this](std::stop_token stop) { work(stop); });
  }

  ~Prefetcher() {
    for (std::jthread& worker : workers_) worker.request_stop();  // request all stops before the first join
  }

  /// Discards all batches and continues with `sequence`.
  void restart(const TaskSequence& sequence) {
    {
      const std::lock_guard lock(mutex_);
      sequence_ = sequence;
      ++generation_;
      begun_ = taken_ = 0;
      std::ranges::fill(slots_, Slot{});
    }
    room_.notify_all();
  }

  /// Blocks until the next batch is ready, and returns it. A failure stays in its slot, so that every further
  /// call throws it again.
  Batch take() {
    std::unique_lock lock(mutex_);
    Slot& slot = next();
    ready_.wait(lock, [&] { return slot.batch || slot.failure; });
    if (slot.failure) std::rethrow_exception(slot.failure);
    return take_from(slot);
  }

  /// Returns the next batch if it is ready.
  std::optional<Batch> take_if_ready() {
    const std::lock_guard lock(mutex_);
    if (!next().batch) return std::nullopt;
    return take_from(next());
  }

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr failure;
  };

  // The caller of these two functions holds the mutex.
  Slot& next() { return slots_[taken_ % slots_.size()]; }
  Batch take_from(Slot& slot) {
    Batch batch = std::move(*slot.batch);
    slot.batch.reset();
    ++taken_;
    room_.notify_one();
    return batch;
  }

  void work(const std::stop_token& stop) {
    CpuStream stream({.threads = 1});
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, stop, [&] { return begun_ < taken_ + slots_.size() && !sequence_.done(); });
      if (stop.stop_requested()) return;
      const BatchTask task = sequence_.take();
      const std::uint64_t number = begun_++;
      const std::uint64_t generation = generation_;
      lock.unlock();
      Slot made;
      try {
        const NamedRange range("make batch");
        made.batch = maker_.make(stream, task);
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      if (generation != generation_) continue;  // restarted in the meantime: discard the batch
      slots_[number % slots_.size()] = std::move(made);
      ready_.notify_one();
    }
  }

  const BatchMaker& maker_;
  std::mutex mutex_;
  std::condition_variable_any room_;  // workers wait here; condition_variable_any supports stop tokens
  std::condition_variable ready_;     // take() waits here
  TaskSequence sequence_;
  std::uint64_t generation_ = 0;
  std::uint64_t begun_ = 0;  // tasks started since the last restart
  std::uint64_t taken_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::jthread> workers_;  // last member, so that the threads end before the others are destroyed
};

}  // namespace

struct DataLoader::Implementation {
  LoaderOptions options;
  BatchPlan plan;
  BatchMaker maker;
  std::int64_t epoch = 0, step = 0;  // of the next call of next_step()
  double wait_ms = 0;
  std::exception_ptr failure;                 // of the last step, some of whose batches are lost
  TaskSequence own_sequence;                  // without workers: the next tasks
  std::unique_ptr<Prefetcher> prefetcher;     // null without workers
  std::unique_ptr<ResidentBatches> resident;  // null if the CPU makes the batches
  std::unique_ptr<DeviceFeed> feed;           // null if batches are not uploaded

  Implementation(const ImageSet& set, LoaderOptions wanted)
      : options(checked(set, std::move(wanted))),
        plan{.samples = set.size(),
             .global_batch = options.global_batch,
             .micro_batch = options.micro_batch,
             .rank = options.rank,
             .world_size = options.world_size,
             .block = set.source ? set.source->about().block : 0},
        maker(set, options, plan),
        own_sequence(options, plan, 0, 0) {
    if (options.resident) {
      resident = std::make_unique<ResidentBatches>(set, options, plan);
      return;
    }
    if (options.device && options.device->kind() == DeviceKind::cuda)
      feed = std::make_unique<DeviceFeed>(*options.device, static_cast<std::size_t>(options.prefetch));
    if (options.workers > 0)
      prefetcher = std::make_unique<Prefetcher>(maker, own_sequence, options.workers, options.prefetch);
  }

  void restart() {
    own_sequence = TaskSequence(options, plan, epoch, step);
    if (prefetcher) prefetcher->restart(own_sequence);
    if (feed) feed->clear();
    failure = nullptr;
  }

  std::vector<Batch> make_step() {
    std::vector<Batch> batches(static_cast<std::size_t>(plan.micro_batches(step)));
    for (Batch& batch : batches) batch = feed ? take_uploaded() : take_made();
    if (feed && prefetcher) upload_ahead();
    return batches;
  }

  Batch take_uploaded() {
    if (feed->sent() == 0) feed->send(take_made());
    return feed->receive();
  }

  /// Starts the upload of the batches of the next step that are ready. The GPU computes the current step
  /// meanwhile.
  void upload_ahead() {
    const auto maximum = static_cast<std::size_t>(plan.micro_batches_of(options.global_batch));
    while (feed->sent() < maximum) {
      std::optional<Batch> batch = prefetcher->take_if_ready();
      if (!batch) return;
      feed->send(std::move(*batch));
    }
  }

  Batch take_made() {
    const auto start = std::chrono::steady_clock::now();
    Batch batch = prefetcher ? prefetcher->take() : make_here(own_sequence.take());
    wait_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return batch;
  }

  Batch make_here(const BatchTask& task) {
    const NamedRange range("make batch");
    if (resident) return resident->make(task);
    return maker.make(std::get<std::reference_wrapper<CpuStream>>(maker.context().stream()), task);
  }
};

DataLoader::DataLoader(const ImageSet& set, LoaderOptions options)
    : impl_(std::make_unique<Implementation>(set, std::move(options))) {}

DataLoader::~DataLoader() = default;

std::int64_t DataLoader::steps_per_epoch() const { return impl_->plan.steps(); }

std::int64_t DataLoader::micro_batches_per_step() const {
  return impl_->plan.micro_batches_of(impl_->options.global_batch);
}

void DataLoader::seek(std::int64_t epoch, std::int64_t step) {
  const std::int64_t end = impl_->options.max_epochs >= 0 ? impl_->options.max_epochs : kEpochLimit;
  check(0 <= epoch && epoch <= end, "loader: epoch {}, expected 0 to {}", epoch, end);
  check(0 <= step && step <= steps_per_epoch(), "loader: step {}, expected 0 to {}", step, steps_per_epoch());
  if (epoch == impl_->epoch && step == impl_->step && !impl_->failure) return;
  impl_->epoch = epoch;
  impl_->step = step;
  impl_->restart();
}

std::vector<Batch> DataLoader::next_step() {
  Implementation& own = *impl_;
  if (own.step == steps_per_epoch()) {
    ++own.epoch;
    own.step = 0;
    return {};
  }
  check(own.options.max_epochs < 0 || own.epoch < own.options.max_epochs,
        "loader: epoch {} requested, expected at most max_epochs = {}", own.epoch + 1,
        own.options.max_epochs);
  if (own.failure) std::rethrow_exception(own.failure);
  try {
    std::vector<Batch> batches = own.make_step();
    ++own.step;
    return batches;
  } catch (...) {
    own.failure = std::current_exception();
    throw;
  }
}

void DataLoader::make_images(const Tensor& ids, const Tensor& device_epoch, const Tensor& images) const {
  check(impl_->options.defer_images, "loader: make_images() requires defer_images");
  impl_->resident->make_images(ids, device_epoch, images);
}

DataLoader::EpochRange DataLoader::epoch(std::int64_t epoch) {
  check(micro_batches_per_step() == 1,
        "loader: epoch() requires one batch per step; use next_step() with LoaderOptions::micro_batch");
  seek(epoch);
  return EpochRange(*this);
}

double DataLoader::take_wait_ms() { return std::exchange(impl_->wait_ms, 0.0); }

}  // namespace convoy::data
