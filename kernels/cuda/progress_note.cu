// kernels/progress_note.h on the GPU.
#include "convoy/kernels/progress_note.h"

#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels {
namespace {

// Writes the note before the count, but readers do not rely on this order: a reader waits until neither
// changes.
__global__ void progress_note_kernel(ProgressNote* note, ProgressNote::Content content) {
  note->content = content;
  ++note->count;
}

}  // namespace

void note_progress(CudaStream& stream, ProgressNote* note, const ProgressNote::Content& content) {
  launch(stream, 1, 1, 0, progress_note_kernel, note, content);
}

}  // namespace convoy::kernels
