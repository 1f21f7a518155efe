// StepReporter: the losses, times and reports of training steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/apps/train/callbacks.h"
#include "convoy/apps/train/measurement/loss_log.h"
#include "convoy/apps/train/measurement/step_timer.h"
#include "convoy/apps/train/train_step.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/training/loss_monitor.h"
#include "convoy/engine/training/time_monitor.h"

namespace convoy {

/// The results of steps that the device has completed.
struct CompletedSteps {
  std::vector<training::StepResult> results;      // in order
  std::optional<optim::LossScaler::State> scale;  // nullopt without loss scaling
  training::StepTimes times;                      // on the device's clock
};

/// The objects that a step reporter reads. All must outlive it.
struct StepSources {
  const DeviceContext& device;
  const TrainStep& step;
  const training::LossMonitor& losses;
  data::DataLoader& loader;
  optim::LossScaler* scaler = nullptr;      // null without loss scaling
  dist::Communicator* gradients = nullptr;  // null with one rank
};

struct StepReporterOptions {
  std::int64_t log_every = 1;  // steps per measurement
  std::int64_t total_steps = 0;
  DType loss_dtype = DType::f32;
};

/// Measures training steps and reports them in order. The host does not wait for a GPU during a step: a
/// measured step is reported after the GPU has completed it, and the reports of later steps follow it. At
/// most one measurement is pending, which limits how far the host runs ahead.
class StepReporter {
 public:
  using OnCompleted = std::function<void(const CompletedSteps&)>;
  using OnStep = std::function<void(const StepReport&)>;
  using OnParts = std::function<void(std::int64_t step, const StepParts&)>;

  /// `on_completed` receives the results of all steps in order, before the reports that contain them. It
  /// updates StepSources::losses, from which reports are made, and may throw.
  StepReporter(StepSources sources, StepReporterOptions options, OnCompleted on_completed);

  /// Sets the callbacks of TrainerCallbacks; empty ones are skipped.
  void set_callbacks(OnStep on_step, OnParts on_parts);

  /// Delivers complete reports and starts the time of a step, before its data are loaded.
  void begin_step();
  /// Returns whether add_results() needs a synchronize() before it, for `micro_batches` micro-batches.
  bool full(std::size_t micro_batches) const { return loss_log_.full(micro_batches); }
  /// Adds the results of the micro-batches of a step, whose position is `step`. Throws UsageError if full().
  void add_results(const training::StepResult& step, const std::vector<MicroBatchResult>& results) {
    loss_log_.add(step, results);
  }
  /// Enqueues the report of a step, which has waited `data_ms` for its samples, and delivers complete reports. Blocks until the device has completed the step if there is an
  /// on_parts callback. Collective if the step is measured.
  void end_step(StepReport report, double data_ms);

  /// Stops the time until the next begin_step(), blocks until the device has completed all steps, and
  /// delivers their reports and losses. Collective.
  void synchronize();

 private:
  /// The report of a step, with the measurements that the device has not yet completed.
  struct Pending {
    StepReport report;
    struct Measurement {
      LossesInFlight losses;
      StepTimer::Window window;
      training::StepTimes before_pause;                   // of steps that on_completed_ already has
      std::unique_ptr<optim::LossScaler::Reading> scale;  // null without loss scaling
    };
    std::optional<Measurement> measurement;
  };

  bool is_measured(std::int64_t step) const;
  void report_parts(std::int64_t step, double data_ms);
  void enqueue(StepReport report);
  enum class Wait : bool { no, yes };
  /// Delivers the reports whose measurements are complete; with Wait::yes blocks until all are delivered.
  void deliver(Wait wait);
  void deliver(Pending& pending);
  /// Passes results to on_completed_ and returns the time of their steps.
  training::StepTimes complete(const LossesInFlight& losses,
                               const std::optional<optim::LossScaler::State>& scale,
                               const StepTimer::Window& window);

  StepSources sources_;
  StepReporterOptions options_;
  OnCompleted on_completed_;
  OnStep on_step_;
  OnParts on_parts_;

  LossLog loss_log_;
  StepTimer timer_;
  std::deque<Pending> pending_;  // in order of steps; the measurement of the first is not complete
  // Totals since the last measurement:
  std::int64_t window_steps_ = 0;
  training::StepTimes before_pause_;  // of steps that synchronize() has already passed to on_completed_
  double window_comm_ms_ = 0;         // CPU only: the communication time of a step is known at its end
  /// The end of the previous step, for on_parts_.
  std::optional<std::chrono::steady_clock::time_point> step_began_;
};

}  // namespace convoy
