// Batches of a set whose images lie in a GPU's memory.
#pragma once

#include <optional>

#include "datasets/batch_maker.h"
#include "kernels/runtime/upload.h"

namespace convoy {

/// The GPU gathers, augments and normalises; the host sends each epoch's order, once, and nothing for a step.
/// The batches are those of BatchMaker, bit for bit.
class ResidentBatches {
 public:
  /// Copies the images to options.device, a GPU, where they are not given there.
  ResidentBatches(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  Batch make(const BatchTask& task);
  /// See DataLoader::make_images.
  void make_images(const Tensor& ids, const Tensor& epoch_cell, const Tensor& images) const;

 private:
  void send_order(const BatchTask& task);
  void augment_into(const Tensor& images, const Tensor& ids, std::uint32_t epoch,
                    const std::int32_t* epoch_cell) const;

  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  Tensor images_;            // u8, on the GPU, as all below
  std::int64_t epoch_ = -1;  // that order_ and labels_ are of
  Tensor order_, labels_;    // i32 [samples]: the epoch's ids, and the labels in the same order
  Tensor sent_;              // i32 [2, samples]: both, on the host
  Uploader uploader_;        // last, so that it ends its copies before what they read and write goes
  std::optional<Upload> upload_;
};

}  // namespace convoy
