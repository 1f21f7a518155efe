// Interface for collectives between the devices or ranks that share one computation.
#pragma once

#include "convoy/engine/tensor/tensor.h"

namespace convoy {

/// Collectives over the ranks (or devices) that each hold a shard of a batch or of the model's gradients.
/// Every rank must make the same calls in the same order. Work that is enqueued on the compute stream after a
/// call sees its results; on the CPU the call blocks until they are complete. Not thread-safe.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  /// Returns the number of ranks.
  virtual int size() const = 0;
  /// Gathers `local` [n] of every rank into `gathered` [size(), n], in rank order.
  virtual void all_gather(const Tensor& local, const Tensor& gathered) = 0;
  /// Replaces `values` by their elementwise sum over all ranks.
  virtual void all_reduce(const Tensor& values) = 0;
};

}  // namespace convoy
