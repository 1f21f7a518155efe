// Collectives on tensors, texts and models, in the order of the compute stream or with the host waiting. One
// thread at a time uses the communicator and the model. Functions that block throw PeerError if a rank fails.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/nn/module.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// Returns rank 0's `local` on every rank; the other ranks' `local` is ignored. Collective. Blocks until the
/// text is received. Throws PeerError if a rank fails.
std::string broadcast_text(Communicator& comm, const std::string& local);

/// Returns the texts of all ranks, in rank order, on every rank. Collective, for CPU communicators. Blocks
/// until all are received. Throws PeerError if a rank fails.
std::vector<std::string> all_gather_texts(Communicator& comm, const std::string& local);

/// Copies rank 0's values into the tensors of all ranks. Shapes and types must be equal on all ranks, and the
/// tensors must be on the communicator's device. Collective. The compute stream waits, the host does not:
/// comm.check_errors() throws later errors.
void broadcast_tensors(Communicator& comm, std::span<const Tensor> tensors);

/// Replaces `tensor` by its sum over all ranks. Collective. The compute stream waits, the host does not:
/// comm.check_errors() throws later errors.
void all_reduce_in_order(Communicator& comm, const Tensor& tensor);

/// Replaces `data`, in host memory, by its sum over all ranks. Collective, for CPU communicators. Blocks
/// until the sum is complete.
void all_reduce_and_wait(Communicator& comm, View data);
/// Gathers `local` [n] of every rank into `gathered` [size * n], by rank, both in host memory. Collective,
/// for CPU communicators. Blocks until all values are received.
void all_gather_and_wait(Communicator& comm, ConstView local, View gathered);

/// Copies rank 0's parameters and buffers into the models of all ranks, and refreshes the low-precision
/// copies. Collective.
void broadcast_model(Communicator& comm, nn::Module& model);
/// Copies only the buffers. The running statistics of each rank come from its own samples and differ.
/// Collective.
void broadcast_buffers(Communicator& comm, const nn::Module& model);

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
  Communicator& comm_;
  Event ready_, done_;
};

}  // namespace convoy::dist
