#include "convoy/apps/train/data_parallel.h"

#include <algorithm>
#include <array>
#include <map>
#include <type_traits>
#include <utility>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/consistency.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/parallel/sync_batch_norm.h"
#include "convoy/comm/parallel/zero/sharded_gradients.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/layerwise.h"
#include "convoy/engine/optim/muon.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

// Keys of a manifest.
constexpr const char* kPlanKey = "bucket_plan";
constexpr const char* kBucketKey = "bucket_mb";  // the --bucket-mb of the plan

/// Returns the type that --grad-dtype requests for communication; nullopt for the type of the gradients.
std::optional<DType> communicated_dtype(const TrainOptions& options) {
  if (!options.grad_dtype) return std::nullopt;
  if (*options.grad_dtype == "fp32") return DType::f32;
  return *options.grad_dtype == "bf16" ? DType::bf16 : DType::f16;
}

std::unique_ptr<optim::Optimizer> make_muon(const MuonOptions& muon, const TrainOptions& options,
                                            const std::vector<optim::ParameterGroup>& groups,
                                            const std::vector<RateRule>& rate_rules) {
  optim::MuonGroups divided = optim::muon_groups(
      groups, {.sgd_lr_scale = muon.sgd_lr / *options.lr, .bias_lr_scale = *options.bias_lr / muon.sgd_lr});
  divided.matrices = apply_rate_rules(divided.matrices, rate_rules, peak_rate(options));
  divided.others = apply_rate_rules(divided.others, rate_rules, peak_rate(options));
  if (muon.normalize_filters)
    for (optim::ParameterGroup& group : divided.matrices) group.weight_decay = 0;
  return std::make_unique<optim::Muon>(std::move(divided),
                                       optim::MuonSettings{.momentum = muon.momentum,
                                                           .nesterov = *muon.nesterov,
                                                           .ns_steps = static_cast<int>(muon.ns_steps),
                                                           .normalize = muon.normalize_filters,
                                                           .sgd_momentum = muon.sgd_momentum});
}

/// Makes the optimizer of --optimizer. Muon alone divides the groups before the rules of --lr-for apply.
std::unique_ptr<optim::Optimizer> make_chosen_optimizer(const TrainOptions& options,
                                                        std::vector<optim::ParameterGroup> groups,
                                                        const std::vector<RateRule>& rate_rules) {
  return std::visit(
      [&](const auto& chosen) -> std::unique_ptr<optim::Optimizer> {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (std::is_same_v<T, MuonOptions>) {
          return make_muon(chosen, options, groups, rate_rules);
        } else if constexpr (std::is_same_v<T, SgdOptions>) {
          return std::make_unique<optim::Sgd>(
              std::move(groups),
              optim::SgdSettings{.momentum = chosen.momentum, .nesterov = *chosen.nesterov});
        } else if constexpr (std::is_same_v<T, LarsOptions>) {
          return std::make_unique<optim::Lars>(
              std::move(groups), optim::LarsSettings{.momentum = chosen.momentum,
                                                     .trust_coefficient = chosen.trust_coefficient});
        } else {
          const auto with_moments = [&](auto settings) {
            settings.beta1 = chosen.betas[0];
            settings.beta2 = chosen.betas[1];
            settings.epsilon = chosen.eps;
            return settings;
          };
          if constexpr (std::is_same_v<T, LambOptions>)
            return std::make_unique<optim::Lamb>(std::move(groups), with_moments(optim::LambSettings{}));
          else
            return std::make_unique<optim::Adam>(
                std::move(groups),
                with_moments(optim::AdamSettings{.decoupled = std::is_same_v<T, AdamWOptions>}));
        }
      },
      *options.optimizer);
}

}  // namespace

DataParallel::DataParallel(const TrainOptions& options, const TrainerParts& parts, DType dtype)
    : options_(options), parts_(parts) {
  set_up_sync_batch_norm();
  make_optimizer(dtype);
}

void DataParallel::set_up_sync_batch_norm() {
  // The model may have been trained on several ranks, of which this one remains.
  if (parts_.world_size() == 1) return dist::use_local_statistics(parts_.model.root());
  check(options_.sync_bn == (parts_.statistics != nullptr),
        "--sync-bn {}: found {} communicator for statistics", options_.sync_bn,
        parts_.statistics != nullptr ? "a" : "no");
  if (parts_.statistics != nullptr) dist::synchronize_batch_norms(parts_.model.root(), *parts_.statistics);
}

void DataParallel::make_optimizer(DType dtype) {
  const std::vector<FreezeRule> freeze_rules = parse_freeze_rules(*options_.freeze);
  std::vector<optim::ParameterGroup> groups = apply_freeze_rules(
      optim::decay_groups(parts_.model.parameters(), *options_.weight_decay, *options_.decay_biases),
      freeze_rules);
  freeze_parameters(parts_.model, freeze_rules);
  const std::vector<RateRule> rate_rules =
      resolve_rate_rules(parse_rate_rules(options_.lr_for), parts_.model, groups);
  const bool is_muon = std::holds_alternative<MuonOptions>(
      *options_.optimizer);  // which divides the groups before the rules apply
  if (!is_muon) {
    if (options_.bias_lr) groups = apply_bias_rate(groups, *options_.bias_lr / *options_.lr);
    groups = apply_rate_rules(groups, rate_rules, peak_rate(options_));
  }
  const std::vector<optim::ParameterGroup> whole = groups;
  if (options_.zero > 0 && parts_.world_size() > 1) {
    std::vector<nn::NamedParameter> parameters = parts_.model.parameters();
    std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
    // Forward on one image in evaluation mode changes no state and has the graph of every batch.
    const Shape& image = parts_.model.input();
    const Tensor images = Tensor::zeros({1, image[0], image[1], image[2]}, dtype, parts_.device);
    const Variable loss =
        cross_entropy_sum(parts_.model(images), Tensor::zeros({1}, DType::i32, parts_.device));
    shards_ = std::make_unique<dist::ShardedParameters>(
        parameters, dist::plan_of_graph(parameters, loss, options_.bucket_mb), *parts_.gradients);
    groups = shards_->pieces_of(groups);
    shard_group_ = std::make_unique<dist::CommunicatorGroup>(*parts_.gradients);
  }
  optimizer_ = make_chosen_optimizer(options_, std::move(groups), rate_rules);
  if (shards_)
    sharded_ = std::make_unique<dist::ShardedOptimizer>(*optimizer_, whole, *shards_, *parts_.control);
}

void DataParallel::connect(TrainStep& step) {
  if (parts_.world_size() == 1 || reducer_) return;
  if (shards_) {
    const dist::ZeroStage stage =
        options_.zero == 1 ? dist::ZeroStage::optimizer : dist::ZeroStage::gradients;
    reducer_ = std::make_unique<dist::ShardedGradients>(*shards_, stage, parts_.is_traced());
  } else {
    const dist::GradientSynchronizerOptions options{.bucket_mb = options_.bucket_mb,
                                                    .grad_dtype = communicated_dtype(options_),
                                                    .deterministic = options_.compute.deterministic,
                                                    .plan = plan_to_store(),
                                                    .time_buckets = parts_.is_traced()};
    reducer_ =
        std::make_unique<dist::GradientSynchronizer>(parts_.model.parameters(), *parts_.gradients, options);
  }
  step.set_gradients(reducer_.get(), parts_.control, shard_group_.get());
}

void DataParallel::reconnect(TrainStep& step) {
  if (!reducer_) return;
  check(!shards_, "gradients: the parameters of a sharded optimizer cannot change");
  bucket_plan_.clear();  // of other parameters
  reducer_.reset();
  connect(step);
}

std::optional<std::string> DataParallel::plan_to_store() const {
  if (bucket_plan_.empty() || options_.compute.deterministic) return std::nullopt;
  return bucket_plan_;
}

void DataParallel::load(const io::Checkpoint& checkpoint,
                        const std::vector<optim::NamedState>& other_weights) {
  if (sharded_) {
    saved_.emplace(checkpoint);
    saved_->check_matches(sharded_->describe());
  }
  io::load_checkpoint(checkpoint, parts_.model.root(), sharded_ ? nullptr : optimizer_.get(), other_weights);
  const io::Manifest& manifest = checkpoint.manifest;
  const auto plan = manifest.extra.find(kPlanKey), limit = manifest.extra.find(kBucketKey);
  if (plan != manifest.extra.end() && limit != manifest.extra.end() &&
      limit->second == fmt::format("{}", options_.bucket_mb))
    bucket_plan_ = plan->second;
}

void DataParallel::restore(const optim::OptimizerState& state) {
  const std::vector<optim::NamedState> own = optimizer_->state();
  for (std::size_t i = 0; i < own.size(); ++i) own[i].tensor.copy_from(state.tensors[i].tensor);
  optimizer_->set_steps(state.steps);
}

void DataParallel::restore(const std::vector<const optim::OptimizerShard*>& held) {
  std::array<std::int32_t, 2> local = {-1, -1};
  for (std::size_t i = 0; i < held.size(); ++i) local.at(i) = held[i]->index;
  std::vector<std::int32_t> all(local.begin(), local.end());
  if (const int ranks = parts_.world_size(); ranks > 1) {
    all.resize(local.size() * static_cast<std::size_t>(ranks));
    dist::all_gather_and_wait(*parts_.control, ConstView(local.data(), {2}, DType::i32),
                              View{all.data(), {2 * ranks}, DType::i32});
  }
  std::map<int, int> provider;  // the first rank that holds each shard
  for (std::size_t i = all.size(); i-- > 0;)
    if (all[i] >= 0) provider[all[i]] = static_cast<int>(i / local.size());
  const int count = held.front()->count;
  if (static_cast<int>(provider.size()) != count)
    fail<PeerError>(
        "the remaining ranks hold {} of {} shards of the optimizer's state: a rank has failed together "
        "with the one that had a copy of its shard",
        provider.size(), count);
  const auto fill = [&](const optim::NamedState& whole) {
    for (const optim::OptimizerShard* shard : held)
      if (provider.at(shard->index) == parts_.rank()) shard->copy_to(whole.name, whole.tensor);
  };
  if (sharded_) return sharded_->restore(held.front()->steps, fill);
  for (const optim::NamedState& state : optimizer_->state()) {
    const Tensor whole = Tensor::zeros(state.tensor.shape(), state.tensor.dtype(), Device::cpu());
    fill({state.name, whole, state.kind});
    state.tensor.copy_from(whole);
  }
  optimizer_->set_steps(held.front()->steps);
}

void DataParallel::write_plan(io::Manifest& manifest) const {
  std::optional<std::string> plan = reducer_ ? reducer_->plan_to_store() : std::nullopt;
  if (!plan) return;
  manifest.extra[kPlanKey] = std::move(*plan);
  manifest.extra[kBucketKey] = fmt::format("{}", options_.bucket_mb);
}

void DataParallel::broadcast(const std::vector<optim::NamedState>& other_weights) {
  if (parts_.world_size() == 1) return;
  dist::broadcast_model(*parts_.gradients, parts_.model.root());
  std::vector<Tensor> others;
  for (const optim::NamedState& weight : other_weights) others.push_back(weight.tensor);
  dist::broadcast_tensors(*parts_.gradients, others);
  broadcast_optimizer();
  bucket_plan_ = from_rank_zero(bucket_plan_);
  // A rank on other hardware than rank 0 ignores the algorithm cache and autotunes its own.
  const std::string algorithms = from_rank_zero(format_algorithm_cache(parts_.device));
  if (parts_.rank() > 0 && !algorithms.empty()) load_algorithm_cache(algorithms, parts_.device);
  parts_.gradients->check_errors();
}

std::string DataParallel::from_rank_zero(const std::string& local) const {
  return parts_.world_size() == 1 ? local : dist::broadcast_text(*parts_.control, local);
}

std::int64_t DataParallel::minimum(std::int64_t local) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(parts_.world_size()), local);
  constexpr std::int64_t kBytes = sizeof local;
  if (all.size() > 1)
    dist::all_gather_and_wait(*parts_.control, ConstView(&local, {kBytes}, DType::u8),
                              View{all.data(), {kBytes * parts_.world_size()}, DType::u8});
  return *std::min_element(all.begin(), all.end());
}

void DataParallel::broadcast_optimizer() {
  if (sharded_) {
    // A new training starts from zeros on every rank.
    if (from_rank_zero(saved_ ? "saved" : "") == "saved")
      sharded_->restore(saved_ ? saved_->steps() : 0, [&](const optim::NamedState& whole) {
        if (saved_) whole.tensor.copy_from(saved_->read(whole));
      });
    saved_.reset();
    return;
  }
  std::vector<Tensor> tensors;
  for (const optim::NamedState& state : optimizer_->state()) tensors.push_back(state.tensor);
  dist::broadcast_tensors(*parts_.gradients, tensors);
  optimizer_->set_steps(std::stoll(from_rank_zero(std::to_string(optimizer_->steps()))));
}

io::Snapshot DataParallel::snapshot() const {
  io::Snapshot snapshot = io::Snapshot::of(parts_.model.root());
  if (sharded_)
    snapshot.shard = sharded_->shard();
  else
    snapshot.optimizer = state_of(*optimizer_);
  return snapshot;
}

optim::OptimizerShard DataParallel::shard_of_peer() const {
  // Ranks of a host have consecutive numbers, so the farthest rank is on another host if there is one.
  return sharded_->shard_of_peer(std::max(1, parts_.world_size() / 2));
}

void DataParallel::gather_parameters() {
  if (reducer_) reducer_->gather_parameters();
}

void DataParallel::combine_running_statistics(std::int64_t train_images) const {
  if (parts_.world_size() == 1) return;
  nn::Module& model = parts_.model.root();
  if (options_.bn_buffers != "mean") return dist::broadcast_buffers(*parts_.gradients, model);
  const std::int64_t batch = std::min(*options_.batch_size, train_images);
  const auto samples =
      static_cast<double>(data::shard_range(batch, parts_.rank(), parts_.world_size()).size());
  dist::average_running_statistics(*parts_.control, model, samples);
}

int DataParallel::agree_on_stop() const {
  const int local = parts_.stop_signal ? parts_.stop_signal() : 0;
  if (parts_.world_size() == 1) return local;
  check(parts_.plane != nullptr, "training with {} ranks: found no observer of the job", parts_.world_size());
  // The ranks may receive signals at different steps.
  const auto place = std::find(kStopSignals.begin(), kStopSignals.end(), local);
  const int code = place == kStopSignals.end() ? 0 : static_cast<int>(place - kStopSignals.begin()) + 1;
  const int agreed = parts_.plane->stop_code(code);
  return agreed == 0 ? 0 : kStopSignals[static_cast<std::size_t>(agreed - 1)];
}

void DataParallel::verify_sums(std::int64_t step) {
  if (!reducer_ || parts_.device.kind() != DeviceKind::cuda) return;
  const bool is_sampled = !std::exchange(sums_verified_, true) || step % kSumsPeriod == 0;
  if (is_sampled || options_.job.debug_comm)
    reducer_->verify_sums(*parts_.control, fmt::format("after step {}", step));
}

void DataParallel::check_replicas(std::int64_t step) {
  if (parts_.world_size() == 1) return;
  gather_parameters();
  convoy::dist::check_replicas(*parts_.gradients, parts_.model.parameters(),
                               fmt::format("after step {}", step));
}

std::vector<nn::NamedParameter> DataParallel::local_parameters() const {
  if (!shards_) return parts_.model.parameters();
  std::vector<nn::NamedParameter> parameters;
  for (const optim::ParameterGroup& group : optimizer_->groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  return parameters;
}

std::size_t DataParallel::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const optim::NamedState& state : optimizer_->state()) bytes += state.tensor.bytes();
  return bytes;
}

std::size_t DataParallel::gradient_bytes() const {
  if (reducer_) return reducer_->gradient_bytes();
  std::size_t bytes = 0;
  for (const nn::NamedParameter& parameter : parts_.model.parameters())
    if (parameter.variable.requires_grad()) bytes += parameter.variable.value().bytes();
  return bytes;
}

}  // namespace convoy
