// Batches of a data set whose images are stored in GPU memory.
#pragma once

#include <optional>

#include "convoy/datasets/loader/batch_maker.h"
#include "convoy/kernels/runtime/upload.h"

namespace convoy::data {

/// Gathers, augments and normalizes batches on the GPU. The host uploads the sample order once per epoch, and
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

}  // namespace convoy::data
