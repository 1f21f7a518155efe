// Batches of a set whose images lie in a GPU's memory.
#pragma once

#include "datasets/batch_maker.h"

namespace convoy {

/// The GPU gathers, augments and normalises; the host sends each epoch's order, once, and nothing for a step.
/// The batches are those of BatchMaker, bit for bit.
class ResidentBatches {
 public:
  /// Copies the images to options.device, a GPU.
  ResidentBatches(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  Batch make(const BatchTask& task);

 private:
  void send_order(const BatchTask& task);

  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  Tensor images_;            // u8, on the GPU, as all below
  std::int64_t epoch_ = -1;  // that order_ and labels_ are of
  Tensor order_, labels_;    // i32 [samples]: the epoch's ids, and the labels in the same order
};

}  // namespace convoy
