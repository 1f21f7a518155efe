#include "datasets/resident_batches.h"

#include <algorithm>

namespace convoy {

ResidentBatches::ResidentBatches(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan)
    : set_(set), options_(options), plan_(plan), images_(set.images.to(*options.device)) {}

void ResidentBatches::send_order(const BatchTask& task) {
  const std::vector<std::int32_t>& order = task.order->get();
  const auto* set_labels = set_.labels.view().as<const std::int32_t>();
  std::vector<std::int32_t> labels(order.size());
  std::transform(order.begin(), order.end(), labels.begin(), [&](std::int32_t id) { return set_labels[id]; });
  order_ = Tensor::from(order, {plan_.samples}, *options_.device);
  labels_ = Tensor::from(labels, {plan_.samples}, *options_.device);
  epoch_ = task.epoch;
}

Batch ResidentBatches::make(const BatchTask& task) {
  if (task.epoch != epoch_) send_order(task);
  const Share positions = plan_.positions(task.step, task.index);
  const Shape& stored = images_.shape();
  Batch batch{.images = Tensor::empty({positions.size(), stored[1], stored[2], stored[3]}, options_.dtype,
                                      *options_.device),
              .labels = labels_.rows(positions.begin, positions.end),
              .ids = order_.rows(positions.begin, positions.end),
              .epoch = task.epoch,
              .step = task.step,
              .index = task.index,
              .global_count = plan_.global_count(task.step)};
  if (positions.size() == 0) return batch;
  const Random random{options_.seed, RandomPurpose::augmentation, static_cast<std::uint32_t>(task.epoch)};
  on(batch.images.stream(), [&](auto& s) {
    augment(s, images_.view(), batch.ids.view(), batch.ids.view(), options_.transform.augment, random,
            batch.images.view());
  });
  return batch;
}

}  // namespace convoy
