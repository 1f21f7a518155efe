// What a trainer does because it is one of several.
#include <algorithm>
#include <array>
#include <csignal>

#include "apps/plan_cache.h"
#include "apps/trainer.h"
#include "comm/agreement.h"
#include "comm/broadcast.h"
#include "comm/gradient_synchronizer.h"
#include "comm/sharded_gradients.h"
#include "comm/sync_batch_norm.h"
#include "datasets/sampler.h"
#include "engine/ops/ops.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// What --grad-dtype asks for; nothing where gradients travel as they are.
std::optional<DType> sent_dtype(const TrainOptions& options) {
  if (!options.grad_dtype) return std::nullopt;
  if (*options.grad_dtype == "fp32") return DType::f32;
  return *options.grad_dtype == "bf16" ? DType::bf16 : DType::f16;
}

}  // namespace

void Trainer::share_state() {
  if (parts_.world() == 1) return;
  Communicator& comm = *parts_.gradients;
  broadcast_model(comm, parts_.model.root());
  share_optimizer();
  const auto from_first = [&](const std::string& mine) { return broadcast_text(*parts_.control, mine); };
  state_ = state_from_text(from_first(text_of_state(state_)));
  saved_step_ = std::stoll(from_first(std::to_string(saved_step_)));
  if (scaler_ && state_.scale) scaler_->restore(*state_.scale);
  bucket_plan_ = from_first(bucket_plan_);
  // Of other hardware than rank 0's: this rank times its own.
  const std::string choices = from_first(choices_text(parts_.device));
  if (parts_.rank() > 0 && !choices.empty()) take_choices(choices, parts_.device);
  comm.check_errors();
}

void Trainer::synchronize_statistics() {
  if (parts_.world() == 1) return;
  check(options_.sync_bn == (parts_.statistics != nullptr), "--sync-bn {}: {} a communicator for it",
        options_.sync_bn, parts_.statistics != nullptr ? "found" : "without");
  if (parts_.statistics != nullptr) synchronize_batch_norms(parts_.model.root(), *parts_.statistics);
}

/// What evaluations and checkpoints take, live on every rank: a resume goes on from the same.
void Trainer::share_running_statistics() {
  if (parts_.world() == 1) return;
  Module& model = parts_.model.root();
  if (options_.bn_buffers != "mean") return broadcast_buffers(*parts_.gradients, model);
  const std::int64_t batch = std::min(*options_.batch_size, train_.size());
  const auto samples = static_cast<double>(share_of(batch, parts_.rank(), parts_.world()).size());
  average_running_statistics(*parts_.control, model, samples);
}

std::optional<std::string> Trainer::kept_plan() const {
  if (bucket_plan_.empty() || options_.compute.deterministic) return std::nullopt;
  return bucket_plan_;
}

void Trainer::make_exchange() {
  if (parts_.world() == 1 || gradients_) return;
  if (shards_) {
    const ZeroStage stage = options_.zero == 1 ? ZeroStage::optimizer : ZeroStage::gradients;
    gradients_ = std::make_unique<ShardedGradients>(*shards_, stage, is_traced());
  } else {
    const GradientSynchronizerOptions options{.bucket_mb = options_.bucket_mb,
                                              .grad_dtype = sent_dtype(options_),
                                              .deterministic = options_.compute.deterministic,
                                              .plan = kept_plan(),
                                              .time_buckets = is_traced()};
    gradients_ =
        std::make_unique<GradientSynchronizer>(parts_.model.parameters(), *parts_.gradients, options);
  }
  step_->set_gradients(gradients_.get(), others_.get());
}

/// Of this rank's parts of the parameters with --zero, else of all.
void Trainer::make_optimizer() {
  std::vector<ParameterGroup> groups = decay_groups(parts_.model.parameters(), *options_.weight_decay);
  const std::vector<ParameterGroup> whole = groups;
  if (is_sharded()) {
    std::vector<NamedParameter> parameters = parts_.model.parameters();
    std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
    // One image as in an evaluation, which changes nothing, goes the way of every batch.
    const Shape& image = parts_.model.input();
    const Tensor images = Tensor::zeros({1, image[0], image[1], image[2]}, precision_.compute, parts_.device);
    const Variable loss =
        cross_entropy_sum(parts_.model(images), Tensor::zeros({1}, DType::i32, parts_.device));
    shards_ = std::make_unique<ShardedParameters>(
        parameters, plan_of_graph(parameters, loss, options_.bucket_mb), *parts_.gradients);
    groups = shards_->pieces_of(groups);
    others_ = std::make_unique<RankExchange>(*parts_.gradients);
  }
  optimizer_ =
      convoy::make_optimizer(options_.optimizer, std::move(groups),
                             {.momentum = options_.momentum, .nesterov = options_.nesterov.value_or(false)});
  if (shards_) sharded_ = std::make_unique<ShardedOptimizer>(*optimizer_, whole, *shards_, *parts_.control);
}

void Trainer::share_optimizer() {
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

int Trainer::agreed_stop() const {
  const int mine = parts_.stop_signal ? parts_.stop_signal() : 0;
  if (parts_.world() == 1) return mine;
  // All ranks stop after the same step, though their signals may come at different ones.
  std::array<std::int32_t, 2> counts = {mine == SIGINT ? 1 : 0, mine != 0 && mine != SIGINT ? 1 : 0};
  all_reduce_and_wait(*parts_.control, {counts.data(), {2}, DType::i32});
  return counts[1] > 0 ? SIGTERM : counts[0] > 0 ? SIGINT : 0;
}

void Trainer::check_replicas() const {
  if (parts_.world() == 1) return;
  if (gradients_) gradients_->gather_parameters();
  convoy::check_replicas(*parts_.gradients, parts_.model.parameters(),
                         fmt::format("after step {}", state_.step));
}

}  // namespace convoy
