// What lets one part of a computation know of the others.
#pragma once

#include "engine/tensor/tensor.h"

namespace convoy {

/// How the parts of a batch, or of a model's gradients, on as many devices or ranks, come to numbers that
/// they have in common. All parts call the same in the same order; neither the host nor the compute stream
/// goes on before that stream may use what it gets.
class PartExchange {
 public:
  virtual ~PartExchange() = default;
  virtual int parts() const = 0;
  /// mine [n] of every part, by their number, into all [parts, n].
  virtual void all_gather(const Tensor& mine, const Tensor& all) = 0;
  /// The sum over the parts, in place.
  virtual void all_reduce(const Tensor& sums) = 0;
};

}  // namespace convoy
