// TrainStep: one training step (forward, backward, optimizer), eager on the CPU or as a CUDA graph on a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/common/precision.h"
#include "convoy/apps/train/data_parallel.h"
#include "convoy/apps/train/step_profile.h"
#include "convoy/apps/train/train_context.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// What a step computes on one micro-batch, in device memory.
struct MicroBatchResult {
  Tensor loss;  // [1]: the part of the mean loss of the global batch
  /// [1], of the type of the loss: the number of samples whose label has the largest logit. Undefined if
  /// labels are mixed.
  Tensor correct;
};

/// One training step. On a GPU with --cuda-graph, each shape of step is captured once as a CUDA graph
/// and then replayed, which removes the launch overhead of hundreds of kernels. All values that change
/// between steps (batch, epoch, learning rate, Adam's step count, loss scale) are stored in device memory. A
/// replayed step is therefore bitwise identical to an eager one.
class TrainStep {
 public:
  /// Steps the optimizer of `parallel` with `rates` learning rates, at least Optimizer::rates(). `scaler` is
  /// null without loss scaling. Steps that `profile`, if it is not null, observes are not captured. All must
  /// outlive the step.
  TrainStep(const TrainContext& context, DataParallel& parallel, optim::LossScaler* scaler,
            data::DataLoader& loader, std::int64_t rates, StepProfile* profile);
  ~TrainStep();

  /// Enqueues one step on these micro-batches without waiting for the device. Returns one result per
  /// micro-batch; the sum of the losses over all micro-batches and ranks is the mean loss of the global
  /// batch. The next call may overwrite them. `rates` are the learning rates, in the order of
  /// optim::ParameterGroup::rate. `step`: the number of earlier steps of the training.
  const std::vector<MicroBatchResult>& run(const std::vector<data::Batch>& batches,
                                           const std::vector<double>& rates, std::int64_t step);

  /// Returns the mean loss of a batch of this rank, by a forward pass in evaluation mode that changes no
  /// parameter and no buffer. Blocks until the device has computed it.
  double evaluate(const data::Batch& batch);

  /// Discards the captured steps, because other parameters require a gradient from now on. The next steps run
  /// eagerly, and are captured again.
  void discard_captures();

  /// Returns, once, why steps run eagerly although capture was requested; else nullopt.
  std::optional<std::string> take_warning();

  /// Records the time marks of phases() in every step. Must be called before the first step. Without them, a
  /// captured step has fewer nodes.
  void time_phases() { times_phases_ = true; }
  /// The times of the parts of a step, summed over its micro-batches, in milliseconds.
  struct Phases {
    double forward = 0;        // with gathering and augmentation on a GPU
    double backward = 0;       // the backward passes
    double communication = 0;  // from the end of backward until the gradients of all ranks are summed
    double optimizer = 0;      // the step of the optimizer
  };
  /// Returns the phases of the latest step. Blocks until the device has completed it. Requires time_phases().
  Phases phases() const;
  /// Returns Phases::communication alone. Blocks like phases(). Requires several ranks.
  double communication_ms() const;

 private:
  struct CapturedStep;
  /// Time marks at the beginning of a micro-batch and at the end of forward and backward.
  struct Marks {
    explicit Marks(const DeviceContext& device)
        : begin(Event::timed(device.stream())),
          forward(Event::timed(device.stream())),
          backward(Event::timed(device.stream())) {}
    Event begin, forward, backward;
  };

  /// Writes the epoch_ and mixing_ of the batch, the first rates of rates_ and the norm_batches_ of this step,
  /// and makes copies, in one launch on a GPU.
  void set_inputs(const data::Batch& batch, const std::vector<double>& rates, std::int64_t step,
                  std::vector<kernels::Assignment> copies = {});
  void compute(const std::vector<data::Batch>& batches, std::vector<MicroBatchResult>& results);
  /// Returns the captured step to replay, or null if the step must run eagerly. Either all ranks replay a
  /// step or none does, since a replay launches its collectives without comparing them.
  const CapturedStep* captured_step(const std::vector<data::Batch>& batches);
  /// Captures a step of this shape. Returns false on all ranks, and captures no further step, if the capture
  /// fails on any rank.
  bool capture(CapturedStep& step, const std::vector<data::Batch>& batches);
  /// Returns `failure` of the first rank where it is not empty. Collective.
  std::string failure_of_any_rank(const std::string& failure) const;
  /// Returns the loss of a micro-batch, and the number of its samples that are correct: [1], of the type of
  /// the parameters.
  std::pair<Variable, Tensor> loss_of(const data::Batch& batch, const Tensor& norm_batch);
  /// Returns `own`, the cross-entropy of the batch's labels; with partners, its mean with that of their
  /// labels, by the weight in mixing_.
  Variable mixed_loss(const Variable& own, const Variable& logits, const data::Batch& batch,
                      const CrossEntropyOptions& options) const;
  /// Returns this micro-batch's part of the mean loss and its count, from loss_of().
  MicroBatchResult result_of(const Variable& loss, const Tensor& correct_count,
                             std::int64_t global_count) const;
  /// Returns whether gradients are those of the sum of the samples' losses, instead of their mean.
  bool sums_losses() const { return context_.options.loss_reduction == "sum"; }
  /// Returns the images of the batch, which the device makes for the epoch in `epoch_` if there are none.
  Tensor images_of(const data::Batch& batch);

  const TrainContext& context_;
  DataParallel& parallel_;
  optim::LossScaler* scaler_;
  data::DataLoader& loader_;
  StepProfile* profile_;
  Precision precision_;
  bool captures_;  // steps as CUDA graphs

  Tensor epoch_;          // i32 [1]
  Tensor class_weights_;  // [classes]: class_weights()
  Tensor rates_;          // f64 [number of learning rates]
  Tensor mixing_;         // f32 [6]: data::Mixing::numbers()
  /// f64 [1] per micro-batch: ForwardContext::norm_batch. Empty with --init-from, whose statistics count as
  /// those of many batches.
  std::vector<Tensor> norm_batches_;
  Tensor seed_;  // the gradient of the loss [1]: the loss scale, or 1
  bool times_phases_ = false;
  std::vector<std::unique_ptr<Marks>> marks_;  // one per micro-batch
  std::size_t micro_batches_ = 0;              // of the latest step
  Event backward_done_, summed_;               // recorded if there are several ranks
  Event end_;
  std::vector<MicroBatchResult> results_;  // of an eager step
  /// By the number of samples of all ranks, from which the size of every micro-batch follows.
  std::map<std::int64_t, std::unique_ptr<CapturedStep>> captured_steps_;
  std::int64_t eager_steps_ = 0;
  std::size_t step_bytes_ = 0;  // what the first step allocates at most; 0 after the first capture
  std::optional<std::string> warning_;
};

}  // namespace convoy
