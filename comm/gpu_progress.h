// Which collectives a GPU has come to, and which it has done: what the host sees of a stream that it does not
// wait for, and of a replayed graph, of which it knows nothing else.
#pragma once

#include "comm/collective.h"
#include "kernels/progress_note.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/device.h"

namespace convoy {

class GpuProgress {
 public:
  explicit GpuProgress(const Device& device);
  /// The stream has got to the end of its work, or has none of these notes.
  ~GpuProgress();
  GpuProgress(const GpuProgress&) = delete;
  GpuProgress& operator=(const GpuProgress&) = delete;

  // On either side of a collective's launch.
  void enter(CudaStream& stream, const Collective& collective);
  void leave(CudaStream& stream, const Collective& collective);

  // From any thread. How many so far; replays count.
  std::uint64_t entered() const;
  std::uint64_t left() const;
  /// The latest that was entered. Of use where nothing moves.
  Collective current() const;

 private:
  Device device_;
  ProgressNote* notes_;  // entered, left
};

}  // namespace convoy
