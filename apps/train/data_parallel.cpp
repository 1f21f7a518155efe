#include "convoy/apps/train/data_parallel.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/common/text.h"
#include "convoy/apps/train/options/optimizer.h"
#include "convoy/comm/parallel/consistency.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/parallel/sync_batch_norm.h"
#include "convoy/comm/parallel/zero/sharded_gradients.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

// Keys of a manifest.
constexpr const char* kPlanKey = "bucket_plan";
constexpr const char* kBucketKey = "bucket_mb";  // the --bucket-mb of the plan

}  // namespace

DataParallel::DataParallel(const TrainContext& context)
    : context_(context), reducer_(std::make_unique<dist::GradientReducer>()) {
  set_up_sync_batch_norm();
  std::vector<optim::ParameterGroup> groups = make_parameter_groups(context_.options, context_.model);
  if (context_.options.zero == 0 || !context_.is_distributed()) {
    optimizer_ = make_optimizer(context_.options, context_.model, std::move(groups));
    return;
  }
  std::vector<nn::NamedParameter> parameters = context_.model.parameters();
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
  // Forward on one image in evaluation mode changes no state and has the graph of every batch.
  const Shape& image = context_.model.input();
  const Tensor images = Tensor::zeros({1, image[0], image[1], image[2]},
                                      parse_precision(context_.options.precision).compute, context_.device);
  const Variable loss =
      cross_entropy_sum(context_.model(images), Tensor::zeros({1}, DType::i32, context_.device));
  const HostGroups& hosts = context_.host_groups;
  dist::Communicator& group = hosts.gradients != nullptr ? *hosts.gradients : *context_.gradients;
  shards_ = std::make_unique<dist::ShardedParameters>(
      parameters, dist::plan_of_graph(parameters, loss, context_.options.bucket_mb), group, hosts.replicas);
  optimizer_ = make_optimizer(context_.options, context_.model, shards_->pieces_of(groups));
  sharded_ = std::make_unique<dist::ShardedOptimizer>(*optimizer_, groups, *shards_, *context_.control,
                                                      hosts.control);
  shard_group_ = std::make_unique<dist::CommunicatorGroup>(group);
}

void DataParallel::set_up_sync_batch_norm() {
  // The model may have been trained on several ranks, of which this one remains.
  if (!context_.is_distributed()) return dist::use_local_statistics(context_.model.root());
  check(context_.options.sync_bn == (context_.statistics != nullptr),
        "--sync-bn {}: found {} communicator for statistics", context_.options.sync_bn,
        context_.statistics != nullptr ? "a" : "no");
  if (context_.statistics != nullptr)
    dist::synchronize_batch_norms(context_.model.root(), *context_.statistics);
}

void DataParallel::connect() {
  if (!context_.is_distributed() || is_connected_) return;
  is_connected_ = true;
  if (shards_) {
    const dist::ZeroStage stage =
        context_.options.zero == 1 ? dist::ZeroStage::optimizer : dist::ZeroStage::gradients;
    reducer_ = std::make_unique<dist::ShardedGradients>(*shards_, stage, context_.is_traced());
  } else {
    const std::optional<std::string>& type = context_.options.grad_dtype;
    const dist::GradientSynchronizerOptions options{
        .bucket_mb = context_.options.bucket_mb,
        .grad_dtype = type ? std::optional(parse_precision(*type).compute) : std::nullopt,
        .deterministic = context_.options.compute.deterministic,
        .plan = plan_to_store(),
        .time_buckets = context_.is_traced()};
    reducer_ = std::make_unique<dist::GradientSynchronizer>(context_.model.parameters(), *context_.gradients,
                                                            options);
  }
}

void DataParallel::reconnect() {
  if (!is_connected_) return;
  check(!shards_, "gradients: the parameters of a sharded optimizer cannot change");
  bucket_plan_.clear();  // of other parameters
  reducer_.reset();
  is_connected_ = false;
  connect();
}

std::optional<std::string> DataParallel::plan_to_store() const {
  if (bucket_plan_.empty() || context_.options.compute.deterministic) return std::nullopt;
  return bucket_plan_;
}

void DataParallel::load(const io::Checkpoint& checkpoint,
                        const std::vector<optim::NamedState>& other_weights) {
  if (sharded_) {
    saved_.emplace(checkpoint);
    saved_->check_matches(sharded_->describe());
  }
  io::load_checkpoint(checkpoint, context_.model.root(), sharded_ ? nullptr : optimizer_.get(),
                      other_weights);
  const io::Manifest& manifest = checkpoint.manifest;
  if (value_at(manifest.extra, kBucketKey) == fmt::format("{}", context_.options.bucket_mb))
    bucket_plan_ = value_at(manifest.extra, kPlanKey);
}

void DataParallel::write_plan(io::Manifest& manifest) const {
  std::optional<std::string> plan = reducer_->plan_to_store();
  if (!plan) return;
  manifest.extra[kPlanKey] = std::move(*plan);
  manifest.extra[kBucketKey] = fmt::format("{}", context_.options.bucket_mb);
}

void DataParallel::broadcast(const std::vector<optim::NamedState>& other_weights) {
  if (!context_.is_distributed()) return;
  dist::broadcast_model(*context_.gradients, context_.model.root());
  std::vector<Tensor> others;
  for (const optim::NamedState& weight : other_weights) others.push_back(weight.tensor);
  dist::broadcast_tensors(*context_.gradients, others);
  const std::vector<std::string> texts =
      from_rank_zero({bucket_plan_, format_algorithm_cache(context_.device), saved_ ? "saved" : "",
                      std::to_string(optimizer_->steps()), optim::to_text(optimizer_->own_steps())});
  bucket_plan_ = texts[0];
  // A rank on other hardware than rank 0 ignores the algorithm cache and autotunes its own.
  const std::string& algorithms = texts[1];
  if (context_.rank() > 0 && !algorithms.empty()) load_algorithm_cache(algorithms, context_.device);
  if (sharded_) {
    if (!texts[2].empty()) restore_shards();
  } else {
    optimizer_->set_steps(std::stoll(texts[3]), optim::parse_steps(texts[4]));
    std::vector<Tensor> tensors;  // of a new training zeros on every rank
    if (optimizer_->steps() > 0)
      for (const optim::NamedState& state : optimizer_->state()) tensors.push_back(state.tensor);
    dist::broadcast_tensors(*context_.gradients, tensors);
  }
  context_.gradients->check_errors();
}

std::vector<std::string> DataParallel::from_rank_zero(const std::vector<std::string>& local) const {
  if (!context_.is_distributed()) return local;
  return nlohmann::json::parse(dist::broadcast_text(*context_.control, json_text(nlohmann::json(local))));
}

void DataParallel::restore_shards() {
  sharded_->restore(saved_ ? saved_->steps() : 0, saved_ ? saved_->own_steps() : optim::StepsByName(),
                    [&](const optim::NamedState& whole) {
                      if (saved_) whole.tensor.copy_from(saved_->read(whole));
                    });
  saved_.reset();
}

io::Snapshot DataParallel::snapshot() const {
  io::Snapshot snapshot = io::Snapshot::of(context_.model.root());
  if (sharded_)
    snapshot.shard = sharded_->shard();
  else
    snapshot.optimizer = state_of(*optimizer_);
  return snapshot;
}

void DataParallel::check_errors() const {
  for (dist::Communicator* const communicator :
       {context_.gradients, context_.host_groups.gradients, context_.host_groups.replicas})
    if (communicator != nullptr) communicator->check_errors();
}

void DataParallel::combine_running_statistics(std::int64_t train_images) const {
  if (!context_.is_distributed()) return;
  nn::Module& model = context_.model.root();
  if (context_.options.bn_buffers != "mean") return dist::broadcast_buffers(*context_.gradients, model);
  const std::int64_t batch = std::min(*context_.options.batch_size, train_images);
  const auto samples =
      static_cast<double>(data::shard_range(batch, context_.rank(), context_.world_size()).size());
  dist::average_running_statistics(*context_.control, model, samples);
}

int DataParallel::agree_on_stop() const {
  const int local = context_.stop_signal();
  if (!context_.is_distributed()) return local;
  // The ranks may receive signals at different steps.
  const int agreed = context_.observer->stop_code(stop_code_of(local));
  return agreed == 0 ? 0 : kStopSignals[static_cast<std::size_t>(agreed - 1)];
}

void DataParallel::verify_sums(std::int64_t step) {
  if (!is_connected_ || !context_.is_gpu()) return;
  const bool is_sampled = !std::exchange(sums_verified_, true) || step % kSumsPeriod == 0;
  if (is_sampled || context_.options.job.debug_comm)
    reducer_->verify_sums(*context_.control, fmt::format("after step {}", step));
}

void DataParallel::check_replicas(std::int64_t step) {
  if (!context_.is_distributed()) return;
  gather_parameters();
  convoy::dist::check_replicas(*context_.gradients, context_.model.parameters(),
                               fmt::format("after step {}", step));
}

std::vector<nn::NamedParameter> DataParallel::local_parameters() const {
  if (!shards_) return context_.model.parameters();
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
  if (is_connected_) return reducer_->gradient_bytes();
  std::size_t bytes = 0;
  for (const nn::NamedParameter& parameter : context_.model.parameters())
    if (parameter.variable.requires_grad()) bytes += parameter.variable.value().bytes();
  return bytes;
}

}  // namespace convoy
