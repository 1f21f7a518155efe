#include "convoy/datasets/loader/batch_maker.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <span>
#include <utility>

#include "convoy/datasets/transforms/original_view.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
EpochOrder::EpochOrder(const LoaderOptions& options, const BatchPlan& plan, std::int64_t epoch)
    : options_(options), samples_(plan.samples), epoch_(epoch) {
  if (plan.block > 0)
    blocks_ = {.samples = samples_,
               .block = plan.block,
               .global_batch = options.global_batch,
               .seed = options.seed,
               .epoch = epoch};
}

std::int32_t EpochOrder::at(std::int64_t position) {
  if (blocks_) return static_cast<std::int32_t>(options_.shuffle ? blocks_->at(position) : position);
  std::call_once(drawn_, [this] {
    if (options_.balance.defined()) {
      order_ = balanced_order(options_.balance.to_vector<std::int32_t>(), options_.seed, epoch_);
    } else if (options_.shuffle) {
      order_ = epoch_order(samples_, options_.seed, epoch_);
    } else {
      order_.resize(static_cast<std::size_t>(samples_));
      std::iota(order_.begin(), order_.end(), 0);
    }
  });
  return order_[static_cast<std::size_t>(position)];
}

BatchTask TaskSequence::take() {
  if (!next_.order) next_.order = std::make_shared<EpochOrder>(*options_, *plan_, next_.epoch);
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
    : set_(set),
      options_(options),
      plan_(plan),
      device_(options.device ? options.device->host()
              : set.source   ? DeviceContext(Device::cpu())
                             : set.images.context()) {}

Batch BatchMaker::make(CpuStream& stream, const BatchTask& task) const {
  if (set_.source) read_ahead(task);
  const Range positions = plan_.positions(task.step, task.index);
  const std::int64_t n = positions.size();
  const Shape& stored = set_.shape();
  Batch batch{.images = Tensor::empty({n, stored[1], stored[2], stored[3]}, options_.dtype, device_),
              .labels = Tensor::empty({n}, DType::i32, device_),
              .ids = Tensor::empty({n}, DType::i32, device_),
              .epoch = task.epoch,
              .step = task.step,
              .index = task.index,
              .global_count = plan_.global_count(task.step),
              .smallest = plan_.smallest_micro_batch(task.step)};
  for (std::int64_t i = 0; i < n; ++i)
    batch.ids.view().as<std::int32_t>()[i] = task.order->at(positions.begin + i);
  write_labels(batch.ids, batch.labels);
  augment(stream, batch.ids, task, batch.images);
  if (options_.transform.mixing.enabled()) mix(stream, task, positions, batch);
  return batch;
}

void BatchMaker::read_ahead(const BatchTask& task) const {
  const std::int64_t now = task.epoch * plan_.steps() + task.step;
  const BlockOrder blocks{.block = plan_.block, .global_batch = plan_.global_batch};
  for (const std::int64_t later : {now, now + blocks.steps_ahead()}) {
    const std::int64_t step = later % plan_.steps(), epoch = later / plan_.steps();
    if (options_.max_epochs >= 0 && epoch >= options_.max_epochs) return;
    EpochOrder order(options_, plan_, epoch);
    const Range positions = plan_.positions(step, std::min(task.index, plan_.micro_batches(step) - 1));
    std::vector<std::int64_t> rows;
    for (std::int64_t i = positions.begin; i < positions.end; ++i) rows.push_back(order.at(i));
    set_.source->read_ahead(rows, now, later);
  }
}

void BatchMaker::write_labels(const Tensor& ids, const Tensor& labels) const {
  const auto* const first = ids.view().as<const std::int32_t>();
  std::transform(first, first + ids.numel(), labels.view().as<std::int32_t>(), [&](std::int32_t id) {
    return set_.source ? set_.source->label(id)
                       : set_.labels.view().as<const std::int32_t>()[id % set_.size()];
  });
}

void BatchMaker::augment(CpuStream& stream, const Tensor& ids, const BatchTask& task,
                         const Tensor& images) const {
  const Random random{options_.seed, RandomPurpose::augmentation, static_cast<std::uint32_t>(task.epoch)};
  if (!options_.transform.original.enabled() && !set_.source)
    return kernels::augment(stream, set_.images.view(), ids.view(), ids.view(), options_.transform.augment,
                            random, images.view());
  const Tensor changed = decoded_images(stream, ids, random);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(ids.numel()));
  std::iota(rows.begin(), rows.end(), 0);
  kernels::augment(stream, changed.view(), {rows.data(), ids.shape(), DType::i32}, ids.view(),
                   options_.transform.augment, random, images.view());
}

Tensor BatchMaker::decoded_images(CpuStream& stream, const Tensor& ids, const Random& random) const {
  const Shape& stored = set_.shape();
  const std::int64_t bytes = stored[1] * stored[2] * stored[3];
  const Tensor changed =
      Tensor::empty({ids.numel(), stored[1], stored[2], stored[3]}, DType::u8, Device::cpu());
  const auto* const first = ids.view().as<const std::int32_t>();
  auto* const to = changed.view().as<std::uint8_t>();
  std::mutex mutex;            // guards `failure`
  std::exception_ptr failure;  // of a file; no exception may leave parallel_for
  parallel_for(stream, ids.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
    OriginalView view(options_.transform.original, stored[1], stored[2]);
    SquareResizer resizer(stored[1]);
    const bool is_view = options_.transform.original.enabled();
    for (std::int64_t i = begin; i < end; ++i) try {
        const auto id = static_cast<std::uint64_t>(first[i]);
        const std::int64_t row = first[i] % set_.size();
        const OriginalImage file = set_.original(row, is_view ? view.needed_side(random, id) : stored[1]);
        if (is_view)
          view.write({file.pixels.data(), file.height, file.width, 3}, random, id, to + i * bytes);
        else
          resizer.run(file, stored[1], stored[2], to + i * bytes);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
  });
  if (failure) std::rethrow_exception(failure);
  return changed;
}

void BatchMaker::mix(CpuStream& stream, const BatchTask& task, const Range& positions, Batch& batch) const {
  const Tensor ids = Tensor::empty_like(batch.ids), images = Tensor::empty_like(batch.images);
  auto* const partners = ids.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < positions.size(); ++i)
    partners[i] = task.order->at(plan_.partner(positions.begin + i));
  batch.partner_labels = Tensor::empty_like(batch.labels);
  write_labels(ids, batch.partner_labels);
  augment(stream, ids, task, images);
  batch.mixing = mixing_of(options_, task, set_.shape());
  std::array<float, kernels::kMixingNumbers> numbers;
  std::ranges::copy(batch.mixing.numbers(), numbers.begin());
  kernels::mix_images(stream, images.view(), {numbers.data(), {kernels::kMixingNumbers}, DType::f32},
                      batch.images.view());
}

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
  const std::int64_t n = plan_.samples;
  const auto* set_labels = set_.labels.view().as<const std::int32_t>();
  if (upload_) upload_->wait();  // of the previous epoch; complete long ago
  auto* const sent = sent_.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i) sent[i] = task.order->at(i);
  if (options_.transform.mixing.enabled())
    for (std::int64_t i = 0; i < n; ++i) sent[2 * n + i] = sent[plan_.partner(i)];
  // The labels of the ids, and of the partners' ids.
  for (std::int64_t row = 0; row < sent_.size(0); row += 2)
    std::transform(sent + row * n, sent + (row + 1) * n, sent + (row + 1) * n,
                   [&](std::int32_t id) { return set_labels[id % set_.size()]; });

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

DeviceFeed::DeviceFeed(const DeviceContext& device, std::size_t max_behind)
    : device_(device), max_behind_(max_behind), uploader_(device) {}

void DeviceFeed::send(Batch batch) {
  release_sources();
  sent_.push_back({.source = std::move(batch), .batch = {}, .upload = {}});
  try {
    begin(sent_.back());
  } catch (const DeviceError&) {  // receive() tries again, and throws if there is still no memory
  }
}

Batch DeviceFeed::receive() {
  InFlightBatch& first = sent_.front();
  if (!first.upload) begin(first);
  first.upload->wait_on_compute_stream();
  Batch batch = std::exchange(first.batch, {});
  behind_.push_back(std::move(first));
  sent_.pop_front();
  return batch;
}

void DeviceFeed::clear() {
  while (!sent_.empty()) {
    // The next user of the memory works on the compute stream, which must wait for the upload.
    if (sent_.front().upload)
      receive();
    else
      sent_.pop_front();
  }
}

void DeviceFeed::begin(InFlightBatch& batch_in_flight) {
  Batch batch = batch_in_flight.source;
  std::vector<Uploader::Copy> copies;
  for (Tensor* tensor : {&batch.images, &batch.labels, &batch.ids, &batch.partner_labels}) {
    if (!tensor->defined()) continue;
    const ConstView from = tensor->view();
    *tensor = Tensor::empty(tensor->shape(), tensor->dtype(), device_);
    copies.push_back({.from = from, .to = tensor->view()});
  }
  batch_in_flight.upload = uploader_.start(copies);
  batch_in_flight.batch = std::move(batch);
}

void DeviceFeed::release_sources() {
  while (!behind_.empty() && (behind_.front().upload->done() || behind_.size() >= max_behind_)) {
    behind_.front().upload->wait();
    behind_.pop_front();
  }
}

}  // namespace convoy::data
