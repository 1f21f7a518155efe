#include "convoy/apps/train/rate_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "convoy/apps/train/trainer.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/engine/optim/loss_average.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy {
namespace {

constexpr std::int64_t kSearchSteps = 100;
constexpr double kLowestFactor = 1e-3, kHighestFactor = 100;  // of the default rate
constexpr double kKept = 0.9;                                 // of the average, in each step
constexpr double kDivergence = 4;                             // times the lowest average

constexpr std::int64_t kSmallBatch = 8;     // images of a rank
constexpr std::int64_t kMeasuredSteps = 4;  // with CUDA graphs, the later ones replay
constexpr std::int64_t kMaxFactor = 4;      // of the default, up to which its rate follows (recipe.cpp)
constexpr double kGpuFraction = 0.9, kHostFraction = 0.6;  // of the memory; other programs use the host's

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
                   .host_groups = trial.zero_group == "host" ? job.host_groups() : HostGroups(),
                   .statistics = trial.sync_bn ? job.statistics() : nullptr,
                   .observer = &job.control_plane()});
  trainer.broadcast_state();
  const auto wait_for_parameters = [&] {
    for (const nn::NamedParameter& parameter : setup.model.parameters()) parameter.variable.wait_ready();
  };
  wait_for_parameters();
  optim::WeightAverage before(setup.model.root());
  std::vector<double> losses = trainer.try_rates(rates, goes_on);
  wait_for_parameters();
  before.write_back();
  return losses;
}

}  // namespace

RateSearch choose_rate(std::vector<double> rates, std::vector<double> losses) {
  optim::LossAverage average(kKept);
  double first = 0, lowest = 0;
  std::size_t best = 0;
  for (std::size_t i = 0; i < losses.size() && std::isfinite(losses[i]); ++i) {
    average.add(losses[i]);
    const double value = average.value();
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
  result.chosen = std::stod(fmt::format("{:.2g}", rates[best] / 3));
  result.reason =
      fmt::format("a third of {:.2g}, where the loss was lowest ({:.3g}, from {:.3g}) of rates up to {:.2g}",
                  rates[best], lowest, first, rates.back());
  result.rates = std::move(rates);
  result.losses = std::move(losses);
  return result;
}

RateSearch find_learning_rate(TrainOptions& options, const Setup& setup, Job& job) {
  TrainOptions trial = trial_options(options, kSearchSteps);
  trial.ema = 0;
  std::vector<double> rates;
  for (std::int64_t i = 0; i < kSearchSteps; ++i)
    rates.push_back(*options.lr * kLowestFactor *
                    std::pow(kHighestFactor / kLowestFactor, static_cast<double>(i) / (kSearchSteps - 1)));
  optim::LossAverage average(kKept);
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<double> losses = try_steps(trial, setup, job, rates, [&](double loss) {
    average.add(loss);
    lowest = std::min(lowest, average.value());
    return std::isfinite(loss) && average.value() <= kDivergence * lowest;
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
  CachingAllocator& memory = setup.device.memory();
  const double limit = is_gpu ? static_cast<double>(memory.stats().in_use + memory.available())
                              : static_cast<double>(host_memory_limit()) / std::max(info.local_world_size, 1);
  const double budget = limit * (is_gpu ? kGpuFraction : kHostFraction);
  const auto barrier = [&] {
    if (job.control() != nullptr) job.control()->barrier();
  };
  std::array<double, 2> peaks{};
  for (const std::int64_t factor : {1, 2}) {
    TrainOptions trial = trial_options(options, kMeasuredSteps);
    trial.batch_size = std::min(factor * small, setup.data.train.size());
    memory.reset_peak();
    barrier();  // ranks that are threads share the allocator of the CPU
    try_steps(trial, setup, job, std::vector<double>(kMeasuredSteps, 0), [](double) { return true; });
    peaks[static_cast<std::size_t>(factor - 1)] = static_cast<double>(memory.stats().peak_in_use);
    barrier();
  }
  const bool is_small = setup.data.train.size() < 2 * small;
  std::int64_t batch = is_small ? setup.data.train.size() / ranks
                                : largest_batch(kSmallBatch, peaks[0], peaks[1], budget, maximum / ranks);
  if (dist::Communicator* const control = job.control()) {
    for (const std::string& each : control->gather_object(std::to_string(batch)))
      batch = std::min<std::int64_t>(batch, std::stoll(each));
    batch = std::stoll(dist::broadcast_text(*control, std::to_string(batch)));
  }
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
