// A device: its compute stream and its memory, behind a cheap handle.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/runtime/cuda_options.h"
#include "kernels/runtime/memory.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/timed_choices.h"
#include "kernels/runtime/view.h"

namespace convoy {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct CpuOptions {
  int threads = 0;               // 0: all cores of this process
  std::size_t memory_limit = 0;  // bytes; 0: the machine's physical memory
};

/// GPUs that this build, on this machine, can use. Asks the driver, and makes no context on any of them.
struct CudaAvailability {
  int count = 0;
  std::string reason;  // where count is 0: why, in one line, and what to do
};
CudaAvailability cuda_availability();

/// Copies share one stream and one allocator, which live as long as any handle or tensor on them.
class Device {
 public:
  static Device cpu(const CpuOptions& options = {});
  /// Throws DeviceError where this build, this machine or this index has no GPU, and says which of the three.
  static Device cuda(int index, const CudaOptions& options = {});
  /// "auto" (a GPU where there is one, else the CPU), "cpu", "cuda", "cuda:1".
  static Device parse(std::string_view text, const CpuOptions& options = {}, const CudaOptions& cuda = {});
  /// The GPU of this local rank on a machine with GPUs (throws where there are fewer of them), else the CPU.
  static Device best(int local_rank = 0);

  DeviceKind kind() const;
  int index() const;
  std::string name() const;  // "cpu", "cuda:1"
  /// What a timed choice holds for: "NVIDIA H200, sm_90, cuDNN 9.19.0"; "" for the CPU, where none is made.
  std::string hardware() const;
  /// Tells this GPU from all others, also from another process: "GPU-1f3a…"; "" for the CPU.
  std::string uuid() const;
  int compute_capability() const;  // of a GPU: 90 is 9.0; 0 for the CPU
  Stream stream() const;
  CachingAllocator& memory() const;
  /// Host memory that copies to and from this device need not wait for: pinned for a GPU, any for the CPU.
  CachingAllocator& staging() const { return host().memory(); }
  /// The CPU, with staging() for its memory: where host tensors lie that go to this device or come from it.
  Device host() const;
  /// What was timed and chosen on the compute stream.
  TimedChoices& choices() const;
  /// Whether choices may be timed from now on, which takes a while; off, what has not been timed is computed
  /// by a first guess. A device that times nothing takes no notice.
  void set_may_time(bool may) const;
  /// Blocks until all work on the compute stream is done.
  void synchronize() const;

  /// The very same stream and allocator, not only the same hardware.
  bool is(const Device& other) const { return state_ == other.state_; }

  friend bool operator==(const Device& a, const Device& b) {
    return a.state_ == b.state_ || (a.kind() == b.kind() && a.index() == b.index());
  }

 private:
  struct State;
  /// memory_limit: 0 for none here.
  static std::shared_ptr<State> make_cpu(const CpuOptions& options, std::unique_ptr<MemorySource> source);
  static Device make_cuda(int index, const CudaOptions& options);  // of an index that exists
  explicit Device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Copies the bytes of `from` (on one device) to `to` (on another, or the same); equal shapes and dtypes.
/// Ordered on both compute streams; returns when host memory may be reused.
void copy_bytes(const Device& from_device, ConstView from, const Device& to_device, View to);

/// The same without waiting. A side on the host lies in the staging() memory of the other side's GPU, and
/// stays untouched and allocated until that GPU's stream gets there: record an event after this call, and
/// wait for it before the bytes are read, overwritten or released. (Other host memory costs the wait, not the
/// result.)
void copy_bytes_async(const Device& from_device, ConstView from, const Device& to_device, View to);

}  // namespace convoy
