// What a trainer does because it is one of several.
#include <algorithm>
#include <array>
#include <csignal>

#include "apps/plan_cache.h"
#include "apps/trainer.h"
#include "comm/agreement.h"
#include "comm/broadcast.h"
#include "comm/sync_batch_norm.h"
#include "datasets/sampler.h"
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
  std::vector<Tensor> tensors;
  for (const NamedState& state : optimizer_->state()) tensors.push_back(state.tensor);
  broadcast_tensors(comm, tensors);
  const auto from_first = [&](const std::string& mine) { return broadcast_text(*parts_.control, mine); };
  optimizer_->set_steps(std::stoll(from_first(std::to_string(optimizer_->steps()))));
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

void Trainer::make_synchronizer() {
  if (parts_.world() == 1 || gradients_) return;
  const GradientSynchronizerOptions options{.bucket_mb = options_.bucket_mb,
                                            .grad_dtype = sent_dtype(options_),
                                            .deterministic = options_.compute.deterministic,
                                            .plan = kept_plan(),
                                            .time_buckets = is_traced()};
  gradients_ = std::make_unique<GradientSynchronizer>(parts_.model.parameters(), *parts_.gradients, options);
  step_->set_gradients(gradients_.get());
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
  convoy::check_replicas(*parts_.gradients, parts_.model.parameters(),
                         fmt::format("after step {}", state_.step));
}

}  // namespace convoy
