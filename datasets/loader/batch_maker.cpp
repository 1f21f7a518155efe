#include "convoy/datasets/loader/batch_maker.h"

#include <algorithm>
#include <numeric>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

/// Returns the CPU device that the batches are prepared on.
DeviceContext making_device(const ImageSet& set, const LoaderOptions& options) {
  return options.device ? options.device->host() : set.images.context();
}

}  // namespace

const std::vector<std::int32_t>& EpochOrder::get() {
  std::call_once(drawn_, [this] {
    if (options_.order.defined()) {
      order_ = options_.order.rows(epoch_, epoch_ + 1).to_vector<std::int32_t>();
    } else if (options_.shuffle) {
      order_ = epoch_order(samples_, options_.seed, epoch_);
    } else {
      order_.resize(static_cast<std::size_t>(samples_));
      std::iota(order_.begin(), order_.end(), 0);
    }
  });
  return order_;
}

BatchTask TaskSequence::take() {
  if (!next_.order) next_.order = std::make_shared<EpochOrder>(*options_, plan_->samples, next_.epoch);
  const BatchTask task = next_;
  if (++next_.index == plan_->micro_batches(next_.step)) {
    next_.index = 0;
    if (++next_.step == plan_->steps()) next_ = {.epoch = next_.epoch + 1};
  }
  return task;
}

BatchMaker::BatchMaker(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan)
    : set_(set), options_(options), plan_(plan), device_(making_device(set, options)) {}

Batch BatchMaker::make(CpuStream& stream, const BatchTask& task) const {
  const Range positions = plan_.positions(task.step, task.index);
  const std::int64_t n = positions.size();
  const Shape& stored = set_.images.shape();
  Batch batch{.images = Tensor::empty({n, stored[1], stored[2], stored[3]}, options_.dtype, device_),
              .labels = Tensor::empty({n}, DType::i32, device_),
              .ids = Tensor::empty({n}, DType::i32, device_),
              .epoch = task.epoch,
              .step = task.step,
              .index = task.index,
              .global_count = plan_.global_count(task.step),
              .smallest = plan_.smallest_micro_batch(task.step)};
  if (n == 0) return batch;

  auto* ids = batch.ids.view().as<std::int32_t>();
  std::copy_n(task.order->get().begin() + positions.begin, n, ids);
  const auto* set_labels = set_.labels.view().as<const std::int32_t>();
  std::transform(ids, ids + n, batch.labels.view().as<std::int32_t>(),
                 [&](std::int32_t id) { return set_labels[id]; });
  const Random random{options_.seed, RandomPurpose::augmentation, static_cast<std::uint32_t>(task.epoch)};
  kernels::augment(stream, set_.images.view(), batch.ids.view(), batch.ids.view(), options_.transform.augment,
                   random, batch.images.view());
  return batch;
}

}  // namespace convoy::data
