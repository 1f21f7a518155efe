#include "convoy/datasets/loader/resident_batches.h"

#include <algorithm>
#include <span>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::data {

ResidentBatches::ResidentBatches(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan)
    : set_(set),
      options_(options),
      plan_(plan),
      images_(options.resident_images.defined() ? options.resident_images : set.images.to(*options.device)),
      sent_(Tensor::empty({options.transform.mixing.enabled() ? 4 : 2, plan.samples}, DType::i32,
                          options.device->host())),
      uploader_(*options.device) {}

// The host does not wait for the GPU, which may still compute the previous epoch.
void ResidentBatches::send_order(const BatchTask& task) {
  const std::vector<std::int32_t>& order = task.order->get();
  const std::int64_t n = plan_.samples;
  const auto* set_labels = set_.labels.view().as<const std::int32_t>();
  if (upload_) upload_->wait();  // of the previous epoch; complete long ago
  auto* const sent = sent_.view().as<std::int32_t>();
  std::copy(order.begin(), order.end(), sent);
  if (options_.transform.mixing.enabled())
    for (std::int64_t i = 0; i < n; ++i) sent[2 * n + i] = sent[plan_.partner(i)];
  // The labels of the ids, and of the partners' ids.
  for (std::int64_t row = 0; row < sent_.size(0); row += 2)
    std::transform(sent + row * n, sent + (row + 1) * n, sent + (row + 1) * n,
                   [&](std::int32_t id) { return set_labels[id]; });

  const Tensor received = Tensor::empty(sent_.shape(), DType::i32, *options_.device);
  const Uploader::Copy copy{.from = sent_.view(), .to = received.view()};
  upload_ = uploader_.start(std::span(&copy, 1));
  upload_->wait_on_compute_stream();
  epoch_ = task.epoch;
  order_ = received.slice(0, {n});
  labels_ = received.slice(n, {n});
  if (!options_.transform.mixing.enabled()) return;
  partner_ids_ = received.slice(2 * n, {n});
  partner_labels_ = received.slice(3 * n, {n});
}

Batch ResidentBatches::make(const BatchTask& task) {
  if (task.epoch != epoch_) send_order(task);
  const Range positions = plan_.positions(task.step, task.index);
  Batch batch{.images = {},
              .labels = labels_.rows(positions.begin, positions.end),
              .ids = order_.rows(positions.begin, positions.end),
              .epoch = task.epoch,
              .step = task.step,
              .index = task.index,
              .global_count = plan_.global_count(task.step),
              .smallest = plan_.smallest_micro_batch(task.step)};
  const bool mixes = options_.transform.mixing.enabled();
  if (mixes) {
    batch.partner_labels = partner_labels_.rows(positions.begin, positions.end);
    batch.partner_ids = partner_ids_.rows(positions.begin, positions.end);
    batch.mixing = mixing_of(options_, task, images_.shape());
  }
  if (options_.defer_images) return batch;
  const auto augmented = [&](const Tensor& ids) {
    const Shape& stored = images_.shape();
    const Tensor images =
        Tensor::empty({ids.numel(), stored[1], stored[2], stored[3]}, options_.dtype, *options_.device);
    augment_into(images, ids, static_cast<std::uint32_t>(task.epoch), nullptr);
    return images;
  };
  batch.images = augmented(batch.ids);
  if (mixes) {
    const Tensor partners = augmented(batch.partner_ids);
    const Tensor numbers = Tensor::empty({kernels::kMixingNumbers}, DType::f32, *options_.device);
    std::vector<kernels::Assignment> values;
    for (std::int64_t i = 0; const double value : batch.mixing.numbers()) {
      values.push_back({.to = numbers.rows(i, i + 1).view(), .value = value});
      ++i;
    }
    on(numbers.stream(), [&](auto& s) {
      kernels::assign(s, values);
      kernels::mix_images(s, partners.view(), numbers.view(), batch.images.view());
    });
  }
  return batch;
}

void ResidentBatches::make_images(const Tensor& ids, const Tensor& device_epoch, const Tensor& images) const {
  const auto check_tensor = [&](std::string_view what, const Tensor& tensor, DType dtype,
                                const Shape& shape) {
    check(tensor.dtype() == dtype && tensor.shape() == shape && tensor.context() == *options_.device,
          "loader: {} {} {} on {}, expected {} {} on the loader's {}", what, to_string(tensor.dtype()),
          tensor.shape().text(), tensor.context().name(), to_string(dtype), shape.text(),
          options_.device->name());
  };
  const Shape& stored = images_.shape();
  const std::int64_t n = images.shape().rank() > 0 ? images.size(0) : 0;
  check_tensor("images", images, options_.dtype, {n, stored[1], stored[2], stored[3]});
  check_tensor("ids", ids, DType::i32, {n});
  check_tensor("an epoch", device_epoch, DType::i32, {1});
  augment_into(images, ids, 0, device_epoch.view().as<const std::int32_t>());
}

void ResidentBatches::augment_into(const Tensor& images, const Tensor& ids, std::uint32_t epoch,
                                   const std::int32_t* device_epoch) const {
  const Random random{options_.seed, RandomPurpose::augmentation, epoch, device_epoch};
  on(images.stream(), [&](auto& s) {
    kernels::augment(s, images_.view(), ids.view(), ids.view(), options_.transform.augment, random,
                     images.view());
  });
}

}  // namespace convoy::data
