// The ranks of a communicator as the parts of a computation.
#pragma once

#include "comm/communicator.h"
#include "engine/tensor/part_exchange.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

/// Exchanges between all that the compute stream holds so far and all that comes later. The communicator, on
/// the tensors' device, outlives it. Throws what the communicator has met: on the CPU, which has waited, in
/// this exchange; on a GPU what is known by now.
class RankExchange final : public PartExchange {
 public:
  explicit RankExchange(Communicator& comm);

  int parts() const override { return comm_.size(); }
  void all_gather(const Tensor& mine, const Tensor& all) override;
  void all_reduce(const Tensor& sums) override;

 private:
  template <class F>
  void in_order(const Stream& compute, const F& exchange);

  Communicator& comm_;
  StreamEvent ready_, done_;
};

}  // namespace convoy
