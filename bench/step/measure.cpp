#include "bench/step/step.h"

#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>

#include <algorithm>
#include <system_error>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/train/setup.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy::bench {
namespace {

/// Measures the steps of a training after its warm-up.
class Measurement final : public training::Callback {
 public:
  Measurement(const StepOptions& options, const DeviceContext& device,
              std::function<void(const std::string&)> warn)
      : options_(options),
        device_(device),
        warn_(std::move(warn)),
        first_(options.warmup * *options.steps + 1) {}

  const StepFigures& figures() const { return figures_; }

  void on_warning(std::int64_t, const std::string& text) override { warn_(text); }
  void on_progress(std::int64_t step, double) override {
    if (step == first_) {
      one_step_.emplace("one measured step");
      if (options_.count) start_counting_launches();
    }
    if (step == first_ + 1) {
      one_step_.reset();
      if (options_.count) figures_.launches = stop_counting_launches();
    }
  }
  void on_step(const training::StepResult& result) override {
    if (!result.measured) return;
    const std::uint64_t allocations = device_.memory().stats().source_calls;
    if (result.step < first_) {
      allocations_before_ = allocations;
      return;
    }
    figures_.allocations = allocations - allocations_before_;
    figures_.step_ms.push_back(result.measured->step_ms);
    figures_.images_per_second.push_back(result.measured->images_per_second);
    figures_.peak_bytes = result.measured->memory_bytes;
  }

 private:
  const StepOptions& options_;
  const DeviceContext& device_;
  std::function<void(const std::string&)> warn_;
  std::int64_t first_;  // measured step
  StepFigures figures_;
  std::uint64_t allocations_before_ = 0;
  std::optional<NamedRange> one_step_;  // for ncu --nvtx --nvtx-include "one measured step/"
};

/// Returns a new directory, which is removed with its contents when the last copy of the pointer is destroyed.
std::shared_ptr<const std::string> temporary_directory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "convoy-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    fail<OutputError>("{}: cannot create a temporary directory", pattern);
  return {new std::string(pattern), [](const std::string* path) {
            std::error_code ignored;  // a remaining directory is harmless
            std::filesystem::remove_all(*path, ignored);
            delete path;
          }};
}

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
  const auto directory = temporary_directory();  // for the checkpoint at the end of training
  io::CheckpointDirectory checkpoints(*directory);
  Trainer trainer({.options = training,
                   .model = model,
                   .device = device,
                   .data = data,
                   .transform = data::make_transform(*training.augment, data::channel_statistics(data.train)),
                   .checkpoints = checkpoints,
                   .stop_signal = StopSignals::received,
                   .gradients = job.gradients(),
                   .control = job.control(),
                   .observer = &job.control_plane()});
  PlanCache plans(training.compute.deterministic ? "none" : training.compute.plan_cache, device);
  const auto warn = [&](const std::string& warning) {
    if (job.is_first()) fmt::print(stderr, "convoy-bench-step: warning: {}\n", warning);
  };
  if (const auto warning = plans.load()) warn(*warning);
  trainer.broadcast_state();

  Measurement measurement(options, device, warn);
  trainer.add(measurement);
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
  return measurement.figures();
}

}  // namespace convoy::bench
