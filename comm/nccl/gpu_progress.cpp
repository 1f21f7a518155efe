// GpuProgress: the counting kernels and the host side that reads their counters.
#include "convoy/comm/nccl/gpu_progress.h"

#include <atomic>
#include <bit>
#include <new>

namespace convoy::dist {
namespace {

constexpr std::size_t kBytes = 2 * sizeof(kernels::ProgressNote);

void note(CudaStream& stream, kernels::ProgressNote* to, const CollectiveSignature& collective) {
  kernels::note_progress(stream, to, std::bit_cast<kernels::ProgressNote::Content>(collective));
}

std::uint64_t count_of(kernels::ProgressNote& note) {
  return std::atomic_ref(note.count).load(std::memory_order_relaxed);
}

}  // namespace

GpuProgress::GpuProgress(const DeviceContext& device)
    : device_(device), notes_(new (device_.staging().allocate(kBytes)) kernels::ProgressNote[2]{}) {}

GpuProgress::~GpuProgress() { device_.staging().release(notes_, kBytes); }

void GpuProgress::note_start(CudaStream& stream, const CollectiveSignature& collective) {
  note(stream, &notes_[0], collective);
}

void GpuProgress::note_completion(CudaStream& stream, const CollectiveSignature& collective) {
  note(stream, &notes_[1], collective);
}

std::uint64_t GpuProgress::started() const { return count_of(notes_[0]); }
std::uint64_t GpuProgress::completed() const { return count_of(notes_[1]); }

CollectiveSignature GpuProgress::current() const {
  return std::bit_cast<CollectiveSignature>(notes_[0].content);
}

}  // namespace convoy::dist
