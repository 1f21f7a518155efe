// Exchanges in the order of the compute stream: what every rank takes from rank 0 (texts, the state of a
// model), and sums.
#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"
#include "engine/nn/module.h"

namespace convoy {

/// Rank 0's text, on every rank. The host waits.
std::string broadcast_text(Communicator& comm, const std::string& mine);

/// Rank 0's values into every rank's tensors, of equal shapes and types on the communicator's device. The
/// compute stream waits, not the host; errors: comm.check_errors().
void broadcast_tensors(Communicator& comm, std::span<const Tensor> tensors);

/// The sum over the ranks in the tensor's place. The compute stream waits, not the host; errors:
/// comm.check_errors().
void all_reduce_in_order(Communicator& comm, const Tensor& tensor);

/// The same in host memory: every rank has the sum when it returns. Of ranks that talk on the CPU.
void all_reduce_and_wait(Communicator& comm, View data);
/// mine [n] of every rank, by rank, into all [n size], in host memory. Of ranks that talk on the CPU.
void all_gather_and_wait(Communicator& comm, ConstView mine, View all);

/// Rank 0's parameters and buffers into every rank's model, whose half copies follow.
void broadcast_model(Communicator& comm, Module& model);
/// The buffers alone: a rank's running statistics are those of its share of the samples.
void broadcast_buffers(Communicator& comm, const Module& model);

}  // namespace convoy
