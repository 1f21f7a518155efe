// Loads the libraries of a GPU while the program does something else.
#pragma once

#include <thread>

#include "convoy/apps/common/precision.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// Runs a step of a tiny network, and waits for the device: cuDNN, cuBLASLt and the most common kernels are in memory
/// afterwards, which takes a few tenths of a second. Throws like the operations of a training.
void load_libraries(const DeviceContext& device, const Precision& precision);

/// Does the same on a stream of its own, in another thread, for which the result waits at its end; nothing for a CPU. An
/// error is not reported: the training meets it too, if it matters.
std::jthread load_libraries_in_background(const DeviceContext& device, const Precision& precision);

}  // namespace convoy
