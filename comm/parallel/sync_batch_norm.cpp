#include "convoy/comm/parallel/sync_batch_norm.h"

#include <memory>
#include <vector>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

std::vector<nn::BatchNorm2d*> batch_norms_of(nn::Module& model) {
  std::vector<nn::BatchNorm2d*> norms;
  for (nn::Module* module : model.modules())
    if (auto* const norm = dynamic_cast<nn::BatchNorm2d*>(module)) norms.push_back(norm);
  return norms;
}

void append(std::vector<double>& numbers, const Tensor& tensor) {
  const std::vector<double> values = tensor.to(DType::f64).to_vector<double>();
  numbers.insert(numbers.end(), values.begin(), values.end());
}

/// Returns the concatenation of all ranks' `local`, by rank.
std::vector<double> by_rank(Communicator& comm, const std::vector<double>& local) {
  const auto size = static_cast<std::int64_t>(local.size());
  std::vector<double> all(local.size() * static_cast<std::size_t>(comm.size()));
  all_gather_and_wait(comm, {local.data(), {size}, DType::f64},
                      {all.data(), {size * comm.size()}, DType::f64});
  return all;
}

}  // namespace

int synchronize_batch_norms(nn::Module& model, Communicator& comm) {
  const std::vector<nn::BatchNorm2d*> norms = batch_norms_of(model);
  const auto group = std::make_shared<CommunicatorGroup>(comm);
  for (nn::BatchNorm2d* norm : norms) norm->synchronize(group);
  return static_cast<int>(norms.size());
}

void use_local_statistics(nn::Module& model) {
  for (nn::BatchNorm2d* norm : batch_norms_of(model)) norm->synchronize(nullptr);
}

void average_running_statistics(Communicator& comm, nn::Module& model, double weight) {
  std::vector<nn::BatchNorm2d*> norms = batch_norms_of(model);
  std::erase_if(norms, [](const nn::BatchNorm2d* norm) { return norm->is_frozen(); });
  std::vector<double> local = {weight};
  for (nn::BatchNorm2d* norm : norms) append(local, norm->running().running_mean);
  const std::size_t channels = local.size() - 1;
  for (nn::BatchNorm2d* norm : norms) append(local, norm->running().running_var);
  const std::vector<double> all = by_rank(comm, local);

  std::vector<double> mean(channels), var(channels);
  double sum = 0;
  for (std::size_t rank = 0; rank < all.size(); rank += local.size()) {
    if (all[rank] == 0) continue;
    const double fraction = all[rank] / (sum + all[rank]);  // of the total weight so far
    sum += all[rank];
    for (std::size_t c = 0; c < channels; ++c) {
      const double delta = all[rank + 1 + c] - mean[c];
      var[c] += fraction * (all[rank + 1 + channels + c] - var[c] + (1 - fraction) * delta * delta);
      mean[c] += fraction * delta;
    }
  }
  check(sum > 0,
        "running statistics of {} ranks: found a weight of 0 on all ranks, expected samples on at least one",
        comm.size());

  std::size_t c = 0;
  const auto write = [](const Tensor& to, const double* values) {
    const std::span<const double> channel_values(values, static_cast<std::size_t>(to.numel()));
    to.copy_from(Tensor::from(channel_values, to.shape(), to.context()).to(to.dtype()));
  };
  for (nn::BatchNorm2d* norm : norms) {
    const BatchNormStatistics running = norm->running();
    write(running.running_mean, mean.data() + c);
    write(running.running_var, var.data() + c);
    c += static_cast<std::size_t>(running.running_mean.numel());
  }
}

}  // namespace convoy::dist
