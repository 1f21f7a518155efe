#include "convoy/apps/train/tuning/rate_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "convoy/apps/common/text.h"
#include "convoy/apps/train/trainer.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy {
namespace {

constexpr std::int64_t kSearchSteps = 100;
constexpr double kLowestFactor = 1e-3, kHighestFactor = 100;  // of the default rate
constexpr double kKept = 0.9;                                 // of the average, in each step
constexpr double kDivergence = 4;                             // times the lowest average

/// Follows the average of losses.
class SmoothedLoss {
 public:
  double add(double loss) {
    sum_ = kKept * sum_ + (1 - kKept) * loss;
    weight_ = kKept * weight_ + (1 - kKept);
    return sum_ / weight_;
  }

 private:
  double sum_ = 0, weight_ = 0;
};

constexpr std::int64_t kSmallBatch = 8;     // images of a rank
constexpr std::int64_t kMeasuredSteps = 4;  // with CUDA graphs, the later ones replay
constexpr std::int64_t kMaxFactor =
    4;  // of the default, up to which its rate is known to follow (recipe.cpp)
constexpr double kGpuFraction = 0.9,
                 kHostFraction = 0.6;  // of the memory; other programs use that of the host

/// Follows how much memory of each allocator is in use, beyond that at begin(). The ranks of a process share it, because
/// one listener can be active.
class PeakListener final : public MemoryListener {
 public:
  static PeakListener& of_process() {
    static PeakListener listener;
    return listener;
  }
  void begin(const CachingAllocator& allocator) {
    {
      const std::lock_guard lock(mutex_);
      usage_[&allocator] = {};
    }
    activate(this);
  }
  std::int64_t peak(const CachingAllocator& allocator) {
    const std::lock_guard lock(mutex_);
    return usage_[&allocator].peak;
  }
  void allocated(const CachingAllocator& allocator, const void*, std::size_t bytes) noexcept override {
    add(allocator, static_cast<std::int64_t>(bytes));
  }
  void released(const CachingAllocator& allocator, const void*, std::size_t bytes) noexcept override {
    add(allocator, -static_cast<std::int64_t>(bytes));
  }

 private:
  struct Usage {
    std::int64_t now = 0, peak = 0;
  };
  void add(const CachingAllocator& allocator, std::int64_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = usage_.find(&allocator);
    if (found == usage_.end()) return;
    found->second.now += bytes;
    found->second.peak = std::max(found->second.peak, found->second.now);
  }
  std::mutex mutex_;
  std::map<const CachingAllocator*, Usage> usage_;
};

/// Copies of all parameters and buffers of a network, which it writes back at the end.
class KeptState {
 public:
  explicit KeptState(const models::Model& model) : model_(model) {
    for (const nn::NamedParameter& parameter : model.parameters()) {
      parameter.variable.wait_ready();
      keep(parameter.variable.value());
    }
    for (const nn::NamedBuffer& buffer : model.buffers()) keep(buffer.tensor);
  }
  void restore() const {
    auto copy = copies_.begin();
    for (const nn::NamedParameter& parameter : model_.parameters()) {
      parameter.variable.wait_ready();
      parameter.variable.value().copy_from(*copy++);
    }
    for (const nn::NamedBuffer& buffer : model_.buffers()) Tensor(buffer.tensor).copy_from(*copy++);
    model_.root().refresh_low_precision_copies();
  }

 private:
  void keep(const Tensor& tensor) {
    copies_.push_back(Tensor::empty_like(tensor));
    copies_.back().copy_from(tensor);
  }
  const models::Model& model_;
  std::vector<Tensor> copies_;
};

/// Returns the options of a training of `steps` steps whose rates the caller chooses.
TrainOptions trial_options(const TrainOptions& options, std::int64_t steps) {
  TrainOptions trial = options;
  trial.max_steps = steps;
  trial.epochs = 0;
  trial.profile = 0;
  trial.memory = false;
  trial.schedule = ConstantSchedule{};
  return trial;
}

/// Calls Trainer::try_rates(), and restores all parameters and buffers.
std::vector<double> try_steps(const TrainOptions& trial, const Setup& setup, Job& job,
                              const std::vector<double>& rates, const std::function<bool(double)>& goes_on) {
  io::CheckpointDirectory checkpoints(std::filesystem::path(*trial.out) / "checkpoints");  // stays unused
  Trainer trainer({.options = trial,
                   .model = setup.model,
                   .device = setup.device,
                   .data = setup.data,
                   .transform = setup.transform,
                   .checkpoints = checkpoints,
                   .gradients = job.gradients(),
                   .control = job.control(),
                   .statistics = trial.sync_bn ? job.statistics() : nullptr,
                   .observer = &job.control_plane()});
  trainer.broadcast_state();
  const KeptState state(setup.model);
  std::vector<double> losses = trainer.try_rates(rates, goes_on);
  state.restore();
  return losses;
}

}  // namespace

RateSearch choose_rate(std::vector<double> rates, std::vector<double> losses) {
  SmoothedLoss average;
  double first = 0, lowest = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; i < losses.size() && std::isfinite(losses[i]); ++i) {
    const double value = average.add(losses[i]);
    if (i == 0) first = lowest = value;
    if (value < lowest) {
      lowest = value;
      best = i;
    }
  }
  if (losses.empty() || !(lowest < 0.99 * first))
    fail<NumericError>(
        "--lr find: the loss falls at none of {} rates{}; give --lr a number, and check the data and the labels",
        losses.size(),
        rates.empty() ? "" : fmt::format(" from {:.2g} to {:.2g}", rates.front(), rates.back()));
  RateSearch result;
  result.chosen = std::stod(fmt::format("{:.2g}", rates[best] / 10));
  result.reason =
      fmt::format("a tenth of {:.2g}, where the loss was lowest ({:.3g}, from {:.3g}) of rates up to {:.2g}",
                  rates[best], lowest, first, rates.back());
  result.rates = std::move(rates);
  result.losses = std::move(losses);
  return result;
}

RateSearch find_learning_rate(TrainOptions& options, const Setup& setup, Job& job) {
  TrainOptions trial = trial_options(options, kSearchSteps);
  trial.ema = 0;
  trial.lookahead = 0;
  std::vector<double> rates;
  for (std::int64_t i = 0; i < kSearchSteps; ++i)
    rates.push_back(*options.lr * kLowestFactor *
                    std::pow(kHighestFactor / kLowestFactor, static_cast<double>(i) / (kSearchSteps - 1)));
  SmoothedLoss average;
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<double> losses = try_steps(trial, setup, job, rates, [&](double loss) {
    const double value = average.add(loss);
    lowest = std::min(lowest, value);
    return std::isfinite(loss) && value <= kDivergence * lowest;
  });
  rates.resize(losses.size());
  RateSearch result = choose_rate(std::move(rates), std::move(losses));
  check(result.chosen >= min_lr_of(*options.schedule), "--lr find: found {}, expected at least --min-lr {}",
        result.chosen, min_lr_of(*options.schedule));
  options.lr = result.chosen;
  options.finds_lr = false;
  return result;
}

std::int64_t largest_batch(std::int64_t small, double small_peak, double large_peak, double budget,
                           std::int64_t maximum) {
  const double per_sample = (large_peak - small_peak) / static_cast<double>(small);
  if (per_sample <= 0) return maximum;
  const double fitting = (budget - (small_peak - per_sample * static_cast<double>(small))) / per_sample;
  const auto count = static_cast<std::int64_t>(std::clamp(fitting, 1.0, static_cast<double>(maximum)));
  return count > 8 ? count / 8 * 8 : count;
}

std::string find_batch_size(TrainOptions& options, const Setup& setup, Job& job) {
  const dist::RankInfo& info = job.info();
  const std::int64_t ranks = info.world_size;
  const bool is_gpu = setup.device.kind() == DeviceKind::cuda;
  // Images of one step, of all ranks together.
  const std::int64_t small = kSmallBatch * ranks;
  const std::int64_t maximum = std::min(kMaxFactor * *options.batch_size, setup.data.train.size());
  const std::size_t held = setup.device.memory().stats().in_use;
  const double limit = is_gpu ? static_cast<double>(held + setup.device.memory().available())
                              : static_cast<double>(host_memory_limit()) / std::max(info.local_world_size, 1);
  const double budget = limit * (is_gpu ? kGpuFraction : kHostFraction);
  std::array<double, 2> peaks{};
  for (const std::int64_t factor : {1, 2}) {
    TrainOptions trial = trial_options(options, kMeasuredSteps);
    trial.batch_size = std::min(factor * small, setup.data.train.size());
    PeakListener& listener = PeakListener::of_process();
    listener.begin(setup.device.memory());
    if (job.control() != nullptr) job.control()->barrier();
    try_steps(trial, setup, job, std::vector<double>(kMeasuredSteps, 0), [](double) { return true; });
    peaks[static_cast<std::size_t>(factor - 1)] =
        static_cast<double>(held) + static_cast<double>(listener.peak(setup.device.memory()));
    if (job.control() != nullptr) job.control()->barrier();
  }
  const bool is_small = setup.data.train.size() < 2 * small;
  std::int64_t batch = is_small ? setup.data.train.size() / ranks
                                : largest_batch(kSmallBatch, peaks[0], peaks[1], budget, maximum / ranks);
  if (dist::Communicator* const control = job.control()) {
    for (const std::string& each : control->gather_object(std::to_string(batch)))
      batch = std::min<std::int64_t>(batch, std::stoll(each));
    batch = std::stoll(dist::broadcast_text(*control, std::to_string(batch)));
  }
  MemoryListener::activate(nullptr);
  const double per_image = (peaks[1] - peaks[0]) / static_cast<double>(kSmallBatch);
  const auto bytes = [](double value) {
    return format_bytes(static_cast<std::size_t>(std::max(value, 0.0)));
  };
  options.batch_size = std::max<std::int64_t>(batch, 1) * ranks;
  return fmt::format(
      "{} for an image and {} besides, of {:.0f}% of the {} of {}{}", bytes(per_image),
      bytes(peaks[0] - per_image * static_cast<double>(kSmallBatch)),
      100 * (is_gpu ? kGpuFraction : kHostFraction), bytes(limit), is_gpu ? "the GPU" : "this rank",
      batch >= maximum / ranks / 8 * 8
          ? fmt::format("; at most {} images", is_small || maximum == setup.data.train.size()
                                                   ? "all training"
                                                   : fmt::format("{} times the default of", kMaxFactor))
          : "");
}

}  // namespace convoy
