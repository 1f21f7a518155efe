// GPUs for tests: real GPUs, or emulated ones in builds with CONVOY_CUDA=emulator.
#pragma once

#include <gtest/gtest.h>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy::testing {

/// Returns whether the GPUs of this build are emulated.
bool gpus_are_emulated();

/// Returns the number of execution orders: 1 on a real GPU, and in builds with sanitizers. An emulated GPU
/// can run threads, blocks and streams in different orders, on which no result may depend. Order 0 is the one
/// that the environment selects, by default the simplest.
int gpu_orders();
/// Selects the execution order of the emulated GPU, from 0 to 3. Does nothing on a real GPU.
void set_gpu_order(int order);
/// Lets emulated GPUs that are created from now on have this many multiprocessors, until the next set_gpu_order().
void set_gpu_multiprocessors(int count);

/// Returns and clears the errors that the emulator has found since the last call, or "". Returns "" on a real
/// GPU.
std::string take_gpu_report();

/// A test on GPU 0. Skipped if there is no GPU. Fails if the emulator has found an error.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Calls `f` once per execution order.
  template <class F>
  void for_each_order(F&& f) {
    for (int order = 0; order < gpu_orders(); ++order) {
      SCOPED_TRACE("order " + std::to_string(order));
      set_gpu_order(order);
      f();
    }
    set_gpu_order(0);
  }
};

}  // namespace convoy::testing
