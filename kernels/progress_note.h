// How far a GPU has come with the work of a stream, for the host to see without waiting for it.
#pragma once

#include <cstdint>

#include "kernels/runtime/stream.h"

namespace convoy {

/// In pinned memory of the GPU's (Device::staging()), which the GPU writes and the host reads.
struct ProgressNote {
  struct What {
    std::uint64_t words[3] = {};
  };
  std::uint64_t count = 0;  // how many notes were made so far
  What what = {};           // the latest
};

/// When the stream gets there, once more in each replay where it is recorded: counts, and notes `what`. For
/// GPUs alone: on the CPU whoever does the work can say so.
void note_progress(CudaStream& stream, ProgressNote* note, const ProgressNote::What& what);

}  // namespace convoy
