#include "convoy/apps/common/evaluator.h"

#include <algorithm>
#include <cmath>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/reduce.h"

namespace convoy {
namespace {

/// Returns the predicted class of each row of logits [N, C].
std::vector<std::int32_t> predicted_classes(const Tensor& logits) {
  const Tensor classes = Tensor::empty({logits.size(0)}, DType::i32, logits.context());
  on(logits.stream(), [&](auto& s) { kernels::argmax(s, logits.view(), classes.view()); });
  return classes.to_vector<std::int32_t>();
}

/// Replaces this rank's sums by the sums over all ranks. Counts stay exact: f64 represents integers up to
/// 2^53.
void add_up(dist::Communicator& comm, Evaluation& result, double& loss_sum) {
  std::vector<double> numbers = {loss_sum, static_cast<double>(result.count)};
  numbers.insert(numbers.end(), result.confusion.begin(), result.confusion.end());
  const auto size = static_cast<std::int64_t>(numbers.size());
  dist::all_reduce_and_wait(comm, {numbers.data(), {size}, DType::f64});
  loss_sum = numbers[0];
  result.count = std::llround(numbers[1]);
  for (std::size_t i = 0; i < result.confusion.size(); ++i)
    result.confusion[i] = std::llround(numbers[i + 2]);
}

}  // namespace

std::optional<Evaluation> evaluate(const models::Model& model, const DeviceContext& device,
                                   const data::ImageSet& set, const EvaluationOptions& options) {
  const NoGrad no_grad;
  const int ranks = options.comm != nullptr ? options.comm->size() : 1;
  data::DataLoader loader(set, {.global_batch = options.batch_size * ranks,
                                .rank = options.comm != nullptr ? options.comm->rank() : 0,
                                .world_size = ranks,
                                .shuffle = false,
                                .transform = options.transform.evaluation(),
                                .dtype = options.dtype,
                                .workers = options.workers,
                                .max_epochs = 1,
                                .device = device,
                                .resident = options.resident_images.defined(),
                                .resident_images = options.resident_images});
  Evaluation result{.classes = model.classes()};
  const auto classes = static_cast<std::size_t>(result.classes);
  result.confusion.resize(classes * classes);
  double loss_sum = 0;
  for (const data::Batch& batch : loader.epoch(0)) {
    if (options.stop && options.stop()) return std::nullopt;
    if (batch.labels.size(0) == 0) continue;  // this rank has no samples of the last batch
    const Variable logits = model(batch.images);
    loss_sum += cross_entropy_sum(logits, batch.labels).value().item();
    const std::vector<std::int32_t> labels = batch.labels.to_vector<std::int32_t>();
    const std::vector<std::int32_t> predictions = predicted_classes(logits.value());
    for (std::size_t i = 0; i < labels.size(); ++i)
      ++result.confusion[static_cast<std::size_t>(labels[i]) * classes +
                         static_cast<std::size_t>(predictions[i])];
    result.count += static_cast<std::int64_t>(labels.size());
    if (options.progress) options.progress(std::min(result.count * ranks, set.size()), set.size());
  }
  if (options.comm != nullptr) add_up(*options.comm, result, loss_sum);
  if (result.count == 0) fail<DataError>("evaluation: the set has no images");
  std::int64_t correct = 0;
  for (std::size_t c = 0; c < classes; ++c) correct += result.confusion[c * classes + c];
  result.loss = loss_sum / static_cast<double>(result.count);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(result.count);
  return result;
}

}  // namespace convoy
