// The emulated cuDNN's handles, execution plans, and the finalizing of all descriptors.
#pragma once

#include <cudnn.h>

#include <chrono>
#include <functional>

#include "tests/cuda_emulator/vendor/cudnn_descriptor.h"
#include "tests/cuda_emulator/vendor/cudnn_engine.h"
#include "tests/cuda_emulator/vendor/vendor_state.h"

struct cudnnContext {
  int gpu = 0;
  cudaStream_t stream = nullptr;
};

namespace convoy::emulator {

/// The live handles.
ObjectRegistry<cudnnContext>& cudnn_handles();
/// Returns a live handle. Throws a CudnnRefusal for any other pointer.
const cudnnContext& handle_of(const void* handle);

/// A finalized execution plan.
struct Plan {
  int gpu = 0;
  FusedConvolution fused;
  EngineChoice choice;
  std::size_t workspace_bytes = 0;
};

/// The arrays of one execution.
struct VariantPack {
  Arrays arrays;
  void* workspace = nullptr;
};

/// What happens before a plan is finalized: its handle is in use for some time.
struct Compilation {
  const void* handle = nullptr;
  std::chrono::milliseconds duration{0};
};
/// Returns the compilation that finalizing the descriptor takes, and marks its handle as used. Throws a
/// CudnnRefusal if another thread uses it.
Compilation begin_finalize(const Descriptor& descriptor);
/// Marks the handle as no longer used.
void end(const Compilation& compilation);
/// Implements cudnnBackendFinalize.
void finalize(Descriptor& descriptor);

}  // namespace convoy::emulator
