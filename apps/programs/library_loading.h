// Loads the libraries of a GPU while the program does something else.
#pragma once

#include <thread>

#include "convoy/apps/common/precision.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// Runs a step of a tiny network on a stream of its own, in another thread: cuDNN, cuBLASLt and the most
/// common kernels are in memory afterwards, which takes a few tenths of a second. Does nothing for a CPU.
class LibraryLoading {
 public:
  LibraryLoading(const DeviceContext& device, const Precision& precision);
  /// Waits for the thread. An error of the step is not reported: the training meets it too, if it matters.
  ~LibraryLoading() = default;
  LibraryLoading(const LibraryLoading&) = delete;
  LibraryLoading& operator=(const LibraryLoading&) = delete;

 private:
  std::jthread thread_;
};

/// Does the same in this thread, and waits for the device. Throws like the operations of a training.
void load_libraries(const DeviceContext& device, const Precision& precision);

}  // namespace convoy
