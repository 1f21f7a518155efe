// The member functions of Trainer that communicate with other ranks.
#include <algorithm>
#include <array>
#include <csignal>

#include "apps/common/plan_cache.h"
#include "apps/train/trainer.h"
#include "comm/parallel/broadcast.h"
#include "comm/parallel/consistency.h"
#include "comm/parallel/gradient_synchronizer.h"
#include "comm/parallel/sync_batch_norm.h"
#include "comm/parallel/zero/sharded_gradients.h"
#include "datasets/loader/sampler.h"
#include "engine/ops/ops.h"
#include "kernels/base/check.h"

namespace convoy {
namespace {

/// Returns the type that --grad-dtype requests for communication; nullopt for the type of the gradients.
std::optional<DType> communicated_dtype(const TrainOptions& options) {
  if (!options.grad_dtype) return std::nullopt;
  if (*options.grad_dtype == "fp32") return DType::f32;
  return *options.grad_dtype == "bf16" ? DType::bf16 : DType::f16;
}

}  // namespace

void Trainer::broadcast_state() {
  if (parts_.world_size() == 1) return;
  Communicator& comm = *parts_.gradients;
  broadcast_model(comm, parts_.model.root());
  broadcast_optimizer();
  const auto from_rank_0 = [&](const std::string& local) { return broadcast_text(*parts_.control, local); };
  state_ = parse_state(from_rank_0(format_state(state_)));
  saved_step_ = std::stoll(from_rank_0(std::to_string(saved_step_)));
  if (scaler_ && state_.scale) scaler_->restore(*state_.scale);
  bucket_plan_ = from_rank_0(bucket_plan_);
  // A rank on other hardware than rank 0 ignores the algorithm cache and autotunes its own.
  const std::string algorithms = from_rank_0(format_algorithm_cache(parts_.device));
  if (parts_.rank() > 0 && !algorithms.empty()) load_algorithm_cache(algorithms, parts_.device);
  comm.check_errors();
}

void Trainer::set_up_sync_batch_norm() {
  if (parts_.world_size() == 1) return;
  check(options_.sync_bn == (parts_.statistics != nullptr),
        "--sync-bn {}: found {} communicator for statistics", options_.sync_bn,
        parts_.statistics != nullptr ? "a" : "no");
  if (parts_.statistics != nullptr) synchronize_batch_norms(parts_.model.root(), *parts_.statistics);
}

/// Sets the running statistics on every rank to those that evaluations and checkpoints use. Training
/// continues from them, as a resumed run does.
void Trainer::combine_running_statistics() {
  if (parts_.world_size() == 1) return;
  Module& model = parts_.model.root();
  if (options_.bn_buffers != "mean") return broadcast_buffers(*parts_.gradients, model);
  const std::int64_t batch = std::min(*options_.batch_size, train_.size());
  const auto samples = static_cast<double>(shard_range(batch, parts_.rank(), parts_.world_size()).size());
  average_running_statistics(*parts_.control, model, samples);
}

std::optional<std::string> Trainer::kept_plan() const {
  if (bucket_plan_.empty() || options_.compute.deterministic) return std::nullopt;
  return bucket_plan_;
}

void Trainer::make_reducer() {
  if (parts_.world_size() == 1 || gradients_) return;
  if (shards_) {
    const ZeroStage stage = options_.zero == 1 ? ZeroStage::optimizer : ZeroStage::gradients;
    gradients_ = std::make_unique<ShardedGradients>(*shards_, stage, is_traced());
  } else {
    const GradientSynchronizerOptions options{.bucket_mb = options_.bucket_mb,
                                              .grad_dtype = communicated_dtype(options_),
                                              .deterministic = options_.compute.deterministic,
                                              .plan = kept_plan(),
                                              .time_buckets = is_traced()};
    gradients_ =
        std::make_unique<GradientSynchronizer>(parts_.model.parameters(), *parts_.gradients, options);
  }
  step_->set_gradients(gradients_.get(), shard_group_.get());
}

/// Makes an optimizer of this rank's shard of the parameters with --zero, else of all parameters.
void Trainer::make_optimizer() {
  std::vector<ParameterGroup> groups = decay_groups(parts_.model.parameters(), *options_.weight_decay);
  const std::vector<ParameterGroup> whole = groups;
  if (is_sharded()) {
    std::vector<NamedParameter> parameters = parts_.model.parameters();
    std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
    // Forward on one image in evaluation mode changes no state and has the graph of every batch.
    const Shape& image = parts_.model.input();
    const Tensor images = Tensor::zeros({1, image[0], image[1], image[2]}, precision_.compute, parts_.device);
    const Variable loss =
        cross_entropy_sum(parts_.model(images), Tensor::zeros({1}, DType::i32, parts_.device));
    shards_ = std::make_unique<ShardedParameters>(
        parameters, plan_of_graph(parameters, loss, options_.bucket_mb), *parts_.gradients);
    groups = shards_->pieces_of(groups);
    shard_group_ = std::make_unique<CommunicatorGroup>(*parts_.gradients);
  }
  optimizer_ =
      convoy::make_optimizer(options_.optimizer, std::move(groups),
                             {.momentum = options_.momentum, .nesterov = options_.nesterov.value_or(false)});
  if (shards_) sharded_ = std::make_unique<ShardedOptimizer>(*optimizer_, whole, *shards_, *parts_.control);
}

void Trainer::broadcast_optimizer() {
  if (sharded_) {
    sharded_->scatter(restored_ ? *restored_ : sharded_->make_whole());
    restored_.reset();
    return;
  }
  std::vector<Tensor> tensors;
  for (const NamedState& state : optimizer_->state()) tensors.push_back(state.tensor);
  broadcast_tensors(*parts_.gradients, tensors);
  optimizer_->set_steps(std::stoll(broadcast_text(*parts_.control, std::to_string(optimizer_->steps()))));
}

int Trainer::agree_on_stop() const {
  const int local = parts_.stop_signal ? parts_.stop_signal() : 0;
  if (parts_.world_size() == 1) return local;
  // All ranks stop after the same step, even if they receive signals at different steps.
  std::array<std::int32_t, 2> counts = {local == SIGINT ? 1 : 0, local != 0 && local != SIGINT ? 1 : 0};
  all_reduce_and_wait(*parts_.control, {counts.data(), {2}, DType::i32});
  return counts[1] > 0 ? SIGTERM : counts[0] > 0 ? SIGINT : 0;
}

void Trainer::check_replicas() const {
  if (parts_.world_size() == 1) return;
  if (gradients_) gradients_->gather_parameters();
  convoy::check_replicas(*parts_.gradients, parts_.model.parameters(),
                         fmt::format("after step {}", state_.step));
}

}  // namespace convoy
