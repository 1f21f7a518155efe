// One update of the parameters: op by op on the CPU; on a GPU recorded once and then started as a whole, so
// that the GPU waits neither for the host to issue hundreds of kernels nor between them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/gradient_exchange.h"
#include "datasets/loader.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/optimizer.h"
#include "engine/profile/profiler.h"
#include "kernels/runtime/time_mark.h"
#include "kernels/runtime/work_graph.h"
#include "models/model.h"

namespace convoy {

struct TrainStepSettings {
  std::uint64_t seed = 1;
  double label_smoothing = 0;
  std::optional<double> clip_norm;
  DType dtype = DType::f32;       // of images and activations
  DType loss_dtype = DType::f32;  // of losses: the parameters'
  bool record = false;            // as work graphs; a GPU only
  bool computes_empty = false;    // also on no samples: other ranks' batch norms wait for what this one adds
  Profiler* profiler = nullptr;
};

/// Everything that changes from one update to the next lies in the device's memory (the batch, the epoch, the
/// rate, Adam's count, the loss scale), so that an update which is replayed computes what it would have
/// computed op by op, to the bit.
class TrainStep {
 public:
  /// All must outlive it. scaler: null for none.
  TrainStep(const Model& model, Optimizer& optimizer, LossScaler* scaler, DataLoader& loader, Device device,
            TrainStepSettings settings);
  /// Gradients are summed over the ranks from now on. Before the first update. others: those of a sharded
  /// optimizer (UpdateOptions), else null.
  void set_gradients(GradientExchange* gradients, PartExchange* others) {
    gradients_ = gradients;
    others_ = others;
  }
  ~TrainStep();

  /// Enqueues the update of these micro-batches. Returns the loss of each, one element, a part of the mean
  /// over the global batch; the next call may overwrite them.
  const std::vector<Tensor>& run(const std::vector<Batch>& batches, double lr);

  /// Why updates are computed op by op although they were to be recorded; asked once.
  std::optional<std::string> take_problem();

  /// Milliseconds of the latest update, its micro-batches together. Waits for it.
  struct Phases {
    double forward = 0;  // with gathering and augmenting where the GPU does that
    double backward = 0;
    double communication = 0;  // from the end of backward until the gradients of all ranks were here
    double update = 0;
  };
  Phases phases() const;

 private:
  struct Recording;
  /// What shapes the work of an update: samples of each micro-batch, and of all ranks together.
  using Signature = std::vector<std::int64_t>;
  struct Input {
    Tensor images;  // undefined: the GPU makes them
    Tensor labels, ids;
  };
  /// Marks around the parts of a micro-batch.
  struct Marks {
    explicit Marks(const Device& device) : begin(device), forward(device), backward(device) {}
    TimeMark begin, forward, backward;
  };

  static Signature signature_of(const std::vector<Batch>& batches);
  void set_numbers(std::int64_t epoch, double lr);
  void compute(const std::vector<Input>& inputs, std::int64_t global_count, std::vector<Tensor>& losses);
  /// Null where the update is to be computed op by op.
  const Recording* recording_of(const std::vector<Batch>& batches);
  bool record(Recording& recording, const std::vector<Batch>& batches);
  Variable loss_of(const Input& input, std::int64_t global_count);

  const Model& model_;
  Optimizer& optimizer_;
  LossScaler* scaler_;
  DataLoader& loader_;
  GradientExchange* gradients_ = nullptr;  // null: one rank
  PartExchange* others_ = nullptr;
  Device device_;
  TrainStepSettings settings_;

  Tensor epoch_;                               // i32 [1]
  std::int64_t epoch_is_ = -1;                 // what epoch_ holds
  Tensor lr_;                                  // f64 [1]
  std::vector<std::unique_ptr<Marks>> marks_;  // by micro-batch
  std::size_t micro_batches_ = 0;              // of the latest update
  TimeMark summed_, end_;
  std::vector<Tensor> losses_;  // of an update that ran op by op
  std::map<Signature, std::unique_ptr<Recording>> recordings_;
  std::int64_t eager_updates_ = 0;
  std::optional<std::string> problem_;
};

}  // namespace convoy
