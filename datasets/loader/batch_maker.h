// What a DataLoader is made of: the sequence of batches, the preparation of one batch on the CPU or on a GPU,
// and uploads of batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "convoy/datasets/loader/block_order.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/kernels/runtime/upload.h"

namespace convoy::data {

/// The sample order of one epoch. Of a set in memory, the first call of at() computes it. Thread-safe.
class EpochOrder {
 public:
  EpochOrder(const LoaderOptions& options, const BatchPlan& plan, std::int64_t epoch);
  /// Returns the sample at `position`.
  std::int32_t at(std::int64_t position);

 private:
  const LoaderOptions& options_;
  std::int64_t samples_;
  std::int64_t epoch_;
  std::optional<BlockOrder> blocks_;  // of a set that is not in memory
  std::once_flag drawn_;
  std::vector<std::int32_t> order_;
};

/// A micro-batch to be prepared.
struct BatchTask {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t index = 0;
  std::shared_ptr<EpochOrder> order;  // shared by all tasks of the epoch
};

/// Returns the mixing of the task's step for stored images [N, H, W, C]; without TransformSpec::mixing one
/// that changes nothing.
Mixing mixing_of(const LoaderOptions& options, const BatchTask& task, const Shape& images);

/// The sequence of all micro-batches from a given step on, across epochs.
class TaskSequence {
 public:
  /// Starts at `step` of `epoch`. A step after the last one means the start of the next epoch.
  TaskSequence(const LoaderOptions& options, const BatchPlan& plan, std::int64_t epoch, std::int64_t step)
      : options_(&options), plan_(&plan), next_{.epoch = epoch, .step = step} {
    if (step >= plan.steps()) next_ = {.epoch = epoch + 1};
  }
  /// Returns whether the sequence has ended, which happens only with max_epochs or an empty data set.
  bool done() const {
    const std::int64_t end = options_->max_epochs;
    return plan_->steps() == 0 || (end >= 0 && next_.epoch >= end);
  }
  /// Returns the next task and advances.
  BatchTask take();

 private:
  const LoaderOptions* options_;
  const BatchPlan* plan_;
  BatchTask next_;
};

/// Gathers, augments and normalizes the samples of a batch on the CPU. Several threads may call make() at the
/// same time, each with its own stream.
class BatchMaker {
 public:
  BatchMaker(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  Batch make(CpuStream& stream, const BatchTask& task) const;
  /// Returns the CPU device whose memory the batches are in.
  const DeviceContext& context() const { return device_; }

 private:
  /// Requests the blocks of the task and of a later one.
  void read_ahead(const BatchTask& task) const;
  void write_labels(const Tensor& ids, const Tensor& labels) const;
  void augment(CpuStream& stream, const Tensor& ids, const BatchTask& task, const Tensor& images) const;
  /// Returns decoded images, or views of the original images, u8 [n, H, W, C], as they are before the transforms of
  /// kernels::augment(). Throws DataError if a file cannot be read.
  Tensor decoded_images(CpuStream& stream, const Tensor& ids, const Random& random) const;
  /// Mixes the images of the batch with those of their partners, and sets the partners' labels.
  void mix(CpuStream& stream, const BatchTask& task, const Range& positions, Batch& batch) const;

  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  DeviceContext device_;
};

/// Gathers, augments and normalizes batches on the GPU, whose memory has the images. The host uploads the sample order once per epoch, and
/// nothing per step. The batches are bitwise equal to those of BatchMaker. Not thread-safe.
class ResidentBatches {
 public:
  /// Copies the images to options.device, a GPU, unless options.resident_images is defined.
  ResidentBatches(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  /// Returns the batch of `task`. Enqueues its kernels without waiting for them.
  Batch make(const BatchTask& task);
  /// See DataLoader::make_images.
  void make_images(const Tensor& ids, const Tensor& device_epoch, const Tensor& images) const;

 private:
  void send_order(const BatchTask& task);
  void augment_into(const Tensor& images, const Tensor& ids, std::uint32_t epoch,
                    const std::int32_t* device_epoch) const;

  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  Tensor images_;            // u8, on the GPU
  std::int64_t epoch_ = -1;  // the epoch of order_ and labels_
  Tensor order_, labels_;    // i32 [samples] on the GPU: the ids of the epoch, and the labels in this order
  Tensor partner_ids_, partner_labels_;  // likewise, of their partners, with TransformSpec::mixing
  Tensor sent_;                          // i32 [2 or 4, samples] on the host: the same
  Uploader uploader_;  // after the tensors: completes its copies before their memory is freed
  std::optional<Upload> upload_;
};

/// A queue that uploads batches while the GPU computes. Keeps the host copy of a batch until its upload is
/// complete. Not thread-safe.
class DeviceFeed {
 public:
  /// `max_behind` is the maximum number of received batches whose uploads are incomplete. send() blocks
  /// beyond it, which bounds the host and GPU memory.
  DeviceFeed(const DeviceContext& device, std::size_t max_behind);

  /// Starts the upload of a batch in the memory of device.host(). If the GPU is out of memory, receive()
  /// tries again.
  void send(Batch batch);
  /// Returns the number of batches that were sent and not yet received.
  std::size_t sent() const { return sent_.size(); }
  /// Returns the oldest batch, in GPU memory. The compute stream waits for its upload; the host does not
  /// block. Requires sent() > 0. Throws DeviceError if the GPU is out of memory.
  Batch receive();
  /// Discards all batches that were not received.
  void clear();

 private:
  struct InFlightBatch {
    Batch source;  // on the host
    Batch batch;   // on the GPU; the target of the upload
    std::optional<Upload> upload;
  };

  void begin(InFlightBatch& batch_in_flight);
  void release_sources();

  DeviceContext device_;
  std::size_t max_behind_;
  std::deque<InFlightBatch> sent_;
  std::deque<InFlightBatch> behind_;  // received batches; without the GPU tensors
  Uploader uploader_;                 // last member: completes its copies before their memory is freed
};

}  // namespace convoy::data
