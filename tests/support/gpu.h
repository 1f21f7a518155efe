// GPUs for tests: real ones, or those of the emulator where the build has it (CONVOY_CUDA=emulator).
#pragma once

#include <gtest/gtest.h>

#include "kernels/runtime/device.h"

namespace convoy::testing {

/// Whether the GPUs of this build are the emulator's.
bool gpus_are_emulated();

/// The orders in which an emulated GPU can run threads, blocks and streams: results may depend on none. The
/// first is what the environment asks for, by default the simplest. A real GPU has one, its own.
int gpu_orders();
void set_gpu_order(int order);

/// What the emulator found wrong since the last call, "" where nothing; always "" on a real GPU.
std::string take_gpu_report();

/// A test on the first GPU; skipped where there is none.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// Calls f under each order.
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
