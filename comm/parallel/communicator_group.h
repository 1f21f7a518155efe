// An adapter from Communicator to ProcessGroup, the interface that the engine uses for collectives.
#pragma once

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/tensor/process_group.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// A process group over the ranks of a communicator on the tensors' device. Each collective runs after all
/// work that is enqueued on the compute stream and before all later work. Its functions throw errors of the
/// communicator: on the CPU, which waits, those of this collective; on a GPU, those known so far.
class CommunicatorGroup final : public ProcessGroup {
 public:
  /// `comm` must outlive the group.
  explicit CommunicatorGroup(Communicator& comm);

  int size() const override { return comm_.size(); }
  void all_gather(const Tensor& local, const Tensor& gathered) override;
  void all_reduce(const Tensor& values) override;

 private:
  template <class F>
  void in_order(const Stream& compute, const F& collective);

  Communicator& comm_;
  Event ready_, done_;
};

}  // namespace convoy::dist
