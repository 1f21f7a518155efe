// The training loop: updates, evaluations and checkpoints in an order that depends on the step alone.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/evaluator.h"
#include "apps/loss_log.h"
#include "apps/precision.h"
#include "apps/step_timer.h"
#include "apps/train_options.h"
#include "apps/train_step.h"
#include "apps/training_state.h"
#include "comm/gradient_exchange.h"
#include "comm/rank_exchange.h"
#include "comm/sharded_optimizer.h"
#include "comm/sharded_parameters.h"
#include "datasets/loader.h"
#include "engine/io/checkpoint.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/profile/profiler.h"
#include "models/model.h"

namespace convoy {

/// What is known of the steps since the last report, every --log-every steps.
struct StepMeasurements {
  double loss = 0;          // of this step: mean over the global batch, before the update
  double average_loss = 0;  // exponential moving average
  double images_per_second = 0;
  double step_ms = 0;
  double data_ms = 0;                      // of step_ms, waiting for the loader
  std::optional<double> comm_ms;           // of step_ms, waiting for other ranks' gradients; of several ranks
  std::size_t memory_bytes = 0;            // peak of the device's allocator
  std::optional<LossScaler::State> scale;  // of a training that scales its loss
};

struct StepReport {
  std::int64_t step = 0;  // updates done, this one included
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  double lr = 0;
  std::optional<StepMeasurements> measured;
};

/// Where the time of one step went on this rank, in milliseconds; the parts add up to step.
struct StepParts {
  double step =
      0;  // from the end of the step before, once the device was done with it, to the end of this one
  double data = 0;  // waiting for the loader
  double forward = 0, backward = 0;
  double communication = 0;  // exposed: from the end of backward until all ranks' gradients were here
  double update = 0;
  double idle = 0;  // what remains: the host between its calls, and the device before its work reaches it
};

/// Called from run(), in the order of events. Empty ones are skipped. A GPU works behind the host, so a
/// measured step is reported once the GPU has come to its end, and those after it wait behind it.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t epoch)> on_epoch;  // after its last update
  std::function<void(std::int64_t step, const Evaluation&, bool is_best)> on_evaluation;
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_save;
  std::function<void(std::int64_t done, std::int64_t count)> on_evaluation_progress;
  std::function<void(std::int64_t step, const std::string& text)> on_warning;
  /// After every step, before its report. Where it is set, each step waits for the device to be done.
  std::function<void(std::int64_t step, const StepParts&)> on_parts;
};

/// What a trainer works with; all must outlive it.
struct TrainerParts {
  const Model& model;
  const Device& device;
  const DataSet& data;
  TransformSpec transform;
  CheckpointFolder& checkpoints;
  std::map<std::string, std::string> extra;  // of every manifest
  Profiler* profiler = nullptr;
  std::function<int()> stop_signal;  // non-zero: finish the step, save, return

  /// Of several ranks, each of which has a trainer with the same data, options and model: what carries
  /// gradients, and what carries small things in the CPU's memory (the same, on the CPU). Null: one rank.
  Communicator* gradients = nullptr;
  Communicator* control = nullptr;
  /// With --sync-bn, of several ranks: what carries statistics of batch norm; on the CPU nothing else.
  Communicator* statistics = nullptr;

  int rank() const { return control != nullptr ? control->rank() : 0; }
  int world() const { return control != nullptr ? control->size() : 1; }
};

/// With several ranks all of them call the same things in the same order. Rank 0 alone writes checkpoints;
/// stops, losses and evaluations are those of all ranks together.
class Trainer {
 public:
  /// options: resolved.
  Trainer(const TrainOptions& options, TrainerParts parts);

  /// Takes parameters, optimizer and position from a checkpoint. What it returns is a warning: its timed
  /// algorithms are of other hardware, or damaged. Of several ranks, rank 0 alone; share_state() follows.
  std::optional<std::string> resume(const std::filesystem::path& checkpoint);
  /// What rank 0 has, on every rank: parameters, buffers, optimizer, position. Nothing with one rank.
  void share_state();

  /// Trains to the end, or until stopped: the signal, else 0. NumericError where a loss or the parameters are
  /// not finite; what was saved before stays.
  int run(TrainerCallbacks callbacks = {});

  /// One batch forward, with its loss: shows that data, model and memory fit. Changes nothing.
  double try_batch();

  const TrainingState& state() const { return state_; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return loader_->steps_per_epoch(); }
  bool finished() const { return state_.step >= total_steps_; }
  /// What this rank's optimizer keeps beside the parameters, and the most that gradients have taken.
  std::size_t optimizer_bytes() const;
  std::size_t gradient_bytes() const;

 private:
  /// A step's report, and what is still on its way from the device.
  struct Report {
    StepReport report;
    struct Measurement {
      LossesInFlight losses;
      StepTimer::Window window;
      double carried_seconds;  // of the same steps, before a pause
      std::int64_t steps, samples;
      std::unique_ptr<LossScaler::Reading> scale;  // null where the loss is not scaled
    };
    std::optional<Measurement> measurement;
  };

  void take_step();
  void finish_step(std::int64_t samples, double lr);
  bool is_reported(std::int64_t step) const;
  void queue_report(StepReport report);
  /// Reports what has arrived; with Wait::yes everything.
  enum class Wait : bool { no, yes };
  void deliver_reports(Wait wait);
  void deliver(Report& report);
  void take_losses(const LossesInFlight& losses, const std::optional<LossScaler::State>& scale);
  /// Waits for the device, so that state_ is that of the last step; the clock stands still until the next.
  void settle();
  bool is_traced() const { return parts_.profiler != nullptr && parts_.profiler->enabled(); }
  void trace_step();
  void report_parts(double data_ms);
  [[noreturn]] void fail_scaling(const LossScaler::State& scale) const;
  std::string last_checkpoint() const;
  void synchronize_statistics();
  void share_running_statistics();
  bool is_sharded() const { return options_.zero > 0 && parts_.world() > 1; }
  void make_optimizer();
  void make_exchange();
  void share_optimizer();
  std::optional<std::string> kept_plan() const;
  /// The signal that stops all ranks, or 0. With several ranks each call is an exchange.
  int agreed_stop() const;
  void check_replicas() const;
  bool evaluation_due() const;
  void run_evaluation();
  bool save_due() const;
  void save();
  void write_checkpoint(const OptimizerState& optimizer);
  void check_parameters() const;

  const TrainOptions& options_;
  TrainerParts parts_;
  Precision precision_;
  TrainerCallbacks callbacks_;
  ImageSet train_;               // all training images, or the one batch of --overfit-batch
  Tensor resident_test_images_;  // on the GPU, from the first evaluation on; undefined where they stay here
  std::unique_ptr<DataLoader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossScaler> scaler_;  // null where the loss is not scaled

  // Of several ranks.
  std::unique_ptr<ShardedParameters> shards_;    // this and the next three: null but with --zero
  std::unique_ptr<ShardedOptimizer> sharded_;    // optimizer_, whose parts lie with all ranks
  std::unique_ptr<RankExchange> others_;         // that have the other parts
  std::optional<OptimizerState> restored_;       // of all ranks; rank 0's, until share_state()
  std::unique_ptr<GradientExchange> gradients_;  // null before run()
  std::unique_ptr<TrainStep> step_;
  Schedule schedule_;
  std::int64_t total_steps_ = 0;
  TrainingState state_;
  std::string bucket_plan_;       // of the checkpoint; empty: none
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  bool best_unsaved_ = false;     // the last evaluation was the best, and no checkpoint holds it yet

  std::unique_ptr<LossLog> loss_log_;
  std::optional<std::chrono::steady_clock::time_point> step_began_;  // of on_parts: where the last one ended
  StepTimer timer_;
  std::deque<Report> reports_;  // in order; the first has a measurement that has not arrived
  // Since the last measurement:
  std::int64_t window_steps_ = 0, window_samples_ = 0;
  double carried_seconds_ = 0;  // what settle() has already counted
  double window_comm_ms_ = 0;   // on the CPU, where each step's is known at its end
};

}  // namespace convoy
