#include "kernels/progress_note.h"

#include "kernels/cuda/launch.h"

namespace convoy {
namespace {

// The words before the count, though nobody relies on it: who reads both waits until neither moves.
__global__ void progress_note_kernel(ProgressNote* note, ProgressNote::What what) {
  note->what = what;
  ++note->count;
}

}  // namespace

void note_progress(CudaStream& stream, ProgressNote* note, const ProgressNote::What& what) {
  launch(stream, 1, 1, 0, progress_note_kernel, note, what);
}

}  // namespace convoy
