// What every rank takes from rank 0: texts, and the state of a model.
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

/// Rank 0's parameters and buffers into every rank's model, whose half copies follow.
void broadcast_model(Communicator& comm, Module& model);

}  // namespace convoy
