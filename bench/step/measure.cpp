#include "bench/step/measure.h"

#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>

#include <algorithm>
#include <optional>
#include <system_error>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/train/setup.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy::bench {
namespace {

/// Accumulates the parts of the measured steps.
struct PartsSum {
  StepParts sum;
  double steps = 0;

  void add(const StepParts& parts) {
    ++steps;
    for (double StepParts::*part : kParts) sum.*part += parts.*part;
  }
  StepParts mean() const {
    StepParts mean = sum;
    for (double StepParts::*part : kParts) mean.*part /= steps;
    return mean;
  }

  static constexpr double StepParts::*kParts[] = {
      &StepParts::step,          &StepParts::data,      &StepParts::forward, &StepParts::backward,
      &StepParts::communication, &StepParts::optimizer, &StepParts::idle};
};

/// A new directory that is removed with its contents by the destructor.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "convoy-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      fail<OutputError>("{}: cannot create a temporary directory", pattern);
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;  // a destructor must not throw; a remaining directory is harmless
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

data::DataSet step_images(const StepOptions& options) {
  constexpr std::int64_t kImages = 2048, kLargeSide = 64;
  const TrainOptions& training = options.training;
  const std::int64_t batch = *training.batch_size;
  std::int64_t batches = 2;
  if (training.data.image_size < kLargeSide) batches = std::max(batches, (kImages + batch - 1) / batch);
  return data::generate_shapes({.train = batch * std::min(batches, options.total_steps()),
                                .test = 10,  // for the evaluation at the end of training
                                .size = static_cast<int>(training.data.image_size),
                                .seed = static_cast<std::uint64_t>(training.seed)});
}

StepFigures measure_steps(const StepOptions& options, const DeviceContext& device, const data::DataSet& data,
                          Job& job) {
  const TrainOptions& training = options.training;
  const models::Model model = make_model(training, data, device);
  const TempDirectory directory;  // for the checkpoint at the end of training
  io::CheckpointDirectory checkpoints(directory.path());
  Trainer trainer(training,
                  {.model = model,
                   .device = device,
                   .data = data,
                   .transform = data::make_transform(*training.augment, data::channel_statistics(data.train)),
                   .checkpoints = checkpoints,
                   .extra = {},
                   .stop_signal = StopSignals::received,
                   .gradients = job.gradients(),
                   .control = job.control(),
                   .plane = &job.control_plane()});
  PlanCache plans(training.compute.deterministic ? "none" : training.compute.plan_cache, device);
  const auto warn = [&](const std::string& warning) {
    if (job.is_first()) fmt::print(stderr, "convoy-bench-step: warning: {}\n", warning);
  };
  if (const auto warning = plans.load()) warn(*warning);
  trainer.broadcast_state();

  StepFigures figures;
  PartsSum parts;
  const std::int64_t first = options.warmup * *options.steps + 1;  // first measured step
  std::uint64_t allocations_before = 0;
  std::optional<NamedRange> one_step;  // for ncu --nvtx --nvtx-include "one measured step/"
  TrainerCallbacks callbacks;
  callbacks.on_warning = [&](std::int64_t, const std::string& text) { warn(text); };
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step == first) {
      one_step.emplace("one measured step");
      if (options.count) start_counting_launches();
    }
    if (report.step == first + 1) {
      one_step.reset();
      if (options.count) figures.launches = stop_counting_launches();
    }
    if (!report.measured) return;
    const std::uint64_t allocations = device.memory().stats().source_calls;
    if (report.step < first) {
      allocations_before = allocations;
      return;
    }
    figures.allocations = allocations - allocations_before;
    figures.step_ms.push_back(report.measured->step_ms);
    figures.images_per_second.push_back(report.measured->images_per_second);
    figures.peak_bytes = report.measured->memory_bytes;
  };
  if (options.breakdown)
    callbacks.on_parts = [&](std::int64_t step, const StepParts& step_parts) {
      if (step >= first) parts.add(step_parts);
    };
  trainer.add(std::move(callbacks));
  const StopSignals signals;
  int signal = 0;
  try {
    signal = trainer.run();
  } catch (const std::exception&) {
    job.report_and_abort();  // before the trainer is destroyed, possibly in the middle of a step
  }
  if (signal != 0)
    throw Error(static_cast<ExitCode>(128 + signal), fmt::format("stopped by signal {}", signal));
  if (job.is_first())
    if (const auto warning = plans.store()) warn(*warning);
  if (options.breakdown) figures.parts = parts.mean();
  return figures;
}

}  // namespace convoy::bench
