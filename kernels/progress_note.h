// Progress notes, which show the host how far a GPU has executed the work of a stream, without waiting for
// it.
#pragma once

#include <cstdint>

#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// A progress counter in pinned host memory (DeviceContext::staging()). The GPU writes it, and the host reads
/// it.
struct ProgressNote {
  /// The content of a note, whose meaning is up to the caller.
  struct Content {
    std::uint64_t words[3] = {};
  };
  std::uint64_t count = 0;  // the number of notes so far
  Content content = {};     // the latest note
};

/// Enqueues a write: when the stream reaches it, the GPU increments the stream's progress count `counter`, 0 or
/// 1, and stores it and `content` in `note`, which it does not read, since that takes as long as the kernel. If
/// captured in a CUDA graph, every replay does so again. There is no CPU overload, because CPU work can
/// report its progress itself.
void note_progress(CudaStream& stream, int counter, ProgressNote* note, const ProgressNote::Content& content);

}  // namespace convoy::kernels
