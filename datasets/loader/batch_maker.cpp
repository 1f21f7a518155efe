#include "convoy/datasets/loader/batch_maker.h"

#include <algorithm>
#include <numeric>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/parallel.h"

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

Mixing mixing_of(const LoaderOptions& options, const BatchTask& task, const Shape& images) {
  if (!options.transform.mixing.enabled()) return {};
  return choose_mixing(options.transform.mixing, options.seed, task.epoch, task.step, images[1], images[2]);
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
  const std::vector<std::int32_t>& order = task.order->get();
  std::copy_n(order.begin() + positions.begin, n, batch.ids.view().as<std::int32_t>());
  write_labels(batch.ids, batch.labels);
  augment(stream, batch.ids, task, batch.images);
  if (options_.transform.mixing.enabled()) mix(stream, task, positions, batch);
  return batch;
}

void BatchMaker::write_labels(const Tensor& ids, const Tensor& labels) const {
  const auto* const all = set_.labels.view().as<const std::int32_t>();
  const auto* const first = ids.view().as<const std::int32_t>();
  std::transform(first, first + ids.numel(), labels.view().as<std::int32_t>(),
                 [all](std::int32_t id) { return all[id]; });
}

void BatchMaker::augment(CpuStream& stream, const Tensor& ids, const BatchTask& task,
                         const Tensor& images) const {
  const Random random{options_.seed, RandomPurpose::augmentation, static_cast<std::uint32_t>(task.epoch)};
  if (!options_.transform.rand_augment.enabled())
    return kernels::augment(stream, set_.images.view(), ids.view(), ids.view(), options_.transform.augment,
                            random, images.view());
  const Tensor changed = rand_augmented(stream, ids, random);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(ids.numel()));
  std::iota(rows.begin(), rows.end(), 0);
  kernels::augment(stream, changed.view(), {rows.data(), ids.shape(), DType::i32}, ids.view(),
                   options_.transform.augment, random, images.view());
}

Tensor BatchMaker::rand_augmented(CpuStream& stream, const Tensor& ids, const Random& random) const {
  const Shape& stored = set_.images.shape();
  const std::int64_t bytes = stored[1] * stored[2] * stored[3];
  const Tensor changed =
      Tensor::empty({ids.numel(), stored[1], stored[2], stored[3]}, DType::u8, set_.images.context());
  const auto* const all = set_.images.view().as<const std::uint8_t>();
  const auto* const first = ids.view().as<const std::int32_t>();
  auto* const to = changed.view().as<std::uint8_t>();
  parallel_for(stream, ids.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const ByteImage image{.pixels = {to + i * bytes, static_cast<std::size_t>(bytes)},
                            .height = static_cast<int>(stored[1]),
                            .width = static_cast<int>(stored[2]),
                            .channels = static_cast<int>(stored[3])};
      std::copy_n(all + first[i] * bytes, bytes, image.pixels.begin());
      rand_augment(options_.transform.rand_augment, random, static_cast<std::uint64_t>(first[i]), image);
    }
  });
  return changed;
}

void BatchMaker::mix(CpuStream& stream, const BatchTask& task, const Range& positions, Batch& batch) const {
  const std::vector<std::int32_t>& order = task.order->get();
  const Tensor ids = Tensor::empty_like(batch.ids), images = Tensor::empty_like(batch.images);
  auto* const partners = ids.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < positions.size(); ++i)
    partners[i] = order[static_cast<std::size_t>(plan_.partner(positions.begin + i))];
  batch.partner_labels = Tensor::empty_like(batch.labels);
  write_labels(ids, batch.partner_labels);
  augment(stream, ids, task, images);
  batch.mixing = mixing_of(options_, task, set_.images.shape());
  std::array<float, kernels::kMixingNumbers> numbers;
  std::ranges::copy(batch.mixing.numbers(), numbers.begin());
  kernels::mix_images(stream, images.view(), {numbers.data(), {kernels::kMixingNumbers}, DType::f32},
                      batch.images.view());
}

}  // namespace convoy::data
