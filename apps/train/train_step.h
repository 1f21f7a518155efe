// TrainStep: one training step (forward, backward, optimizer), eager on the CPU or as a CUDA graph on a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/measurement/loss_log.h"
#include "convoy/apps/train/profile/step_profile.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/rank_observer.h"
#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/profile/profiler.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/softmax_cross_entropy.h"
#include "convoy/models/model.h"

namespace convoy {

/// The settings of a training step.
struct TrainStepSettings {
  std::uint64_t seed = 1;
  double label_smoothing = 0;
  double hardest = 1;         // fraction of a micro-batch whose losses count, the largest ones
  bool count_correct = true;  // must be false if labels are mixed
  bool sum_loss = false;      // gradients of the sum of the samples' losses, instead of their mean
  std::optional<double> clip_norm;
  DType dtype = DType::f32;       // type of images and activations
  DType loss_dtype = DType::f32;  // type of losses, which is the type of the parameters
  std::int64_t rates = 1;         // number of learning rates, at least Optimizer::rates()
  bool capture = false;           // capture steps as CUDA graphs; GPU only
  /// Also runs micro-batches without samples, because other ranks' synchronized batch norms wait for them.
  bool run_empty_batches = false;
  Profiler* profiler = nullptr;
  StepProfile* profile = nullptr;       // steps that it observes are not captured
  dist::RankObserver* plane = nullptr;  // learns the phases of the step
};

/// One training step. With TrainStepSettings::capture, each shape of step is captured once as a CUDA graph
/// and then replayed, which removes the launch overhead of hundreds of kernels. All values that change
/// between steps (batch, epoch, learning rate, Adam's step count, loss scale) are stored in device memory. A
/// replayed step is therefore bitwise identical to an eager one.
class TrainStep {
 public:
  /// References and pointers must outlive the step. `scaler` is null without loss scaling.
  TrainStep(const models::Model& model, optim::Optimizer& optimizer, optim::LossScaler* scaler,
            data::DataLoader& loader, DeviceContext device, TrainStepSettings settings);
  /// Sums gradients over all ranks from now on. Must be called before the first step. `control` is a CPU
  /// communicator, by which the ranks agree on captures. `shard_group` is the process group of a sharded
  /// optimizer, else null. All pointers must outlive the step.
  void set_gradients(dist::GradientReducer* gradients, dist::Communicator* control,
                     ProcessGroup* shard_group) {
    gradients_ = gradients;
    control_ = control;
    shard_group_ = shard_group;
  }
  ~TrainStep();

  /// Enqueues one step on these micro-batches without waiting for the device. Returns one result per
  /// micro-batch; the sum of the losses over all micro-batches and ranks is the mean loss of the global batch. The
  /// next call may overwrite them. `rates` are the learning rates, in the order of optim::ParameterGroup::rate.
  const std::vector<MicroBatchResult>& run(const std::vector<data::Batch>& batches,
                                           const std::vector<double>& rates);

  /// Returns the ids, i32 [k], of the samples whose losses the latest step has counted, with
  /// TrainStepSettings::hardest below 1. The next call of run() may overwrite them.
  const Tensor& hardest_ids() const { return hardest_ids_; }

  /// Returns the mean loss of a batch of this rank, by a forward pass in evaluation mode that changes no
  /// parameter and no buffer. Blocks until the device has computed it.
  double evaluate(const data::Batch& batch);

  /// Discards the captured steps, because other parameters require a gradient from now on. The next steps run
  /// eagerly, and are captured again.
  void discard_captures();

  /// Returns, once, why steps run eagerly although capture was requested; else nullopt.
  std::optional<std::string> take_warning();

  /// Durations of a step in milliseconds, summed over its micro-batches.
  struct Phases {
    double forward = 0;  // includes gathering and augmentation on a GPU
    double backward = 0;
    double communication = 0;  // from the end of backward until the gradients of all ranks are summed
    double optimizer = 0;
  };
  /// Records the time marks of phases() in every step. Must be called before the first step. Without them, a
  /// captured step has fewer nodes.
  void time_phases() { times_phases_ = true; }
  /// Returns the phases of the latest step. Blocks until the device has completed it. Requires time_phases().
  Phases phases() const;
  /// Returns Phases::communication alone. Blocks like phases(). Requires set_gradients().
  double communication_ms() const;

 private:
  struct CapturedStep;
  struct Input {
    Tensor images;  // undefined if the GPU makes the images
    Tensor labels, ids;
    Tensor partner_labels, partner_ids;  // as in data::Batch
  };
  /// Time marks at the beginning of a micro-batch and at the end of forward and backward.
  struct Marks {
    explicit Marks(const DeviceContext& device)
        : begin(Event::timed(device.stream())),
          forward(Event::timed(device.stream())),
          backward(Event::timed(device.stream())) {}
    Event begin, forward, backward;
  };

  static Input input_of(const data::Batch& batch);
  /// Writes the epoch_ and mixing_ of the batch and the first rates of rates_, and makes copies, in one launch on a GPU.
  void set_inputs(const data::Batch& batch, const std::vector<double>& rates,
                  std::vector<kernels::Assignment> copies = {});
  void compute(const std::vector<Input>& inputs, std::int64_t global_count,
               std::vector<MicroBatchResult>& results);
  /// Returns the captured step to replay, or null if the step must run eagerly. Either all ranks replay a
  /// step or none does, since a replay launches its collectives without comparing them.
  const CapturedStep* captured_step(const std::vector<data::Batch>& batches);
  /// Captures a step of this shape. Returns false on all ranks, and captures no further step, if the capture
  /// fails on any rank.
  bool capture(CapturedStep& step, const std::vector<data::Batch>& batches);
  /// Returns `failure` of the first rank where it is not empty. Collective.
  std::string failure_of_any_rank(const std::string& failure) const;
  /// Returns the loss of a micro-batch, and the number of its samples that are correct: [1], of type loss_dtype.
  std::pair<Variable, Tensor> loss_of(const Input& input, std::int64_t global_count);
  /// Returns `own`, the cross-entropy of the input's labels; with partners, its mean with that of their labels, by
  /// the weight in mixing_.
  Variable mixed_loss(const Variable& own, const Variable& logits, const Input& input,
                      const CrossEntropyOptions& options) const;
  /// Returns how many of `count` samples have losses that count.
  std::int64_t counted(std::int64_t count) const;
  /// Returns the logits and labels of the samples with the largest of `losses`, and sets hardest_ids_.
  std::pair<Variable, Tensor> hardest_of(const Variable& logits, const Input& input, const Tensor& losses);
  /// Returns this micro-batch's part of the mean loss and its count, from loss_of().
  MicroBatchResult result_of(const Variable& loss, const Tensor& correct_count,
                             std::int64_t global_count) const;
  /// Ends a stage of the profiled step.
  void stage_done(std::string_view name) const;
  /// Returns the images of the input, which the device makes for the epoch in `epoch_` if there are none.
  Tensor images_of(const Input& input);

  const models::Model& model_;
  optim::Optimizer& optimizer_;
  optim::LossScaler* scaler_;
  data::DataLoader& loader_;
  dist::GradientReducer* gradients_ = nullptr;  // null with one rank
  dist::Communicator* control_ = nullptr;       // null with one rank
  ProcessGroup* shard_group_ = nullptr;
  DeviceContext device_;
  TrainStepSettings settings_;

  Tensor epoch_;   // i32 [1]
  Tensor rates_;   // f64 [TrainStepSettings::rates]
  Tensor mixing_;  // f32 [6]: data::Mixing::numbers()
  Tensor seed_;    // the gradient of the loss [1]: the loss scale, or 1
  bool times_phases_ = false;
  std::vector<std::unique_ptr<Marks>> marks_;  // one per micro-batch
  std::size_t micro_batches_ = 0;              // of the latest step
  Event backward_done_, summed_;               // recorded if there are several ranks
  Event end_;
  std::vector<MicroBatchResult> results_;  // of an eager step
  Tensor hardest_ids_;                     // of the latest step
  /// By the number of samples of all ranks, from which the size of every micro-batch follows.
  std::map<std::int64_t, std::unique_ptr<CapturedStep>> captured_steps_;
  std::int64_t eager_steps_ = 0;
  std::optional<std::string> warning_;
};

}  // namespace convoy
