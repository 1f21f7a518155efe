// Device: a handle to a CPU or GPU context with a compute stream and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/view.h"
#include "kernels/runtime/algorithm_cache.h"
#include "kernels/runtime/cuda_options.h"
#include "kernels/runtime/memory/memory.h"
#include "kernels/runtime/stream.h"

namespace convoy {

/// The kind of a device.
enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Options of a CPU device.
struct CpuOptions {
  int threads = 0;               // 0: all cores that this process may use
  std::size_t memory_limit = 0;  // bytes; 0: the physical memory of the machine
};

/// The GPUs that this process can use.
struct CudaAvailability {
  int count = 0;
  std::string reason;  // if count is 0: one line that says why and what to do
};
/// Queries the driver for usable GPUs. Does not create a context on any GPU.
CudaAvailability cuda_availability();

/// A handle to a device context: one compute stream and one allocator. Copies of a handle share the context,
/// which exists as long as any handle or tensor refers to it. Every call of a factory function creates a new
/// context.
class Device {
 public:
  /// Creates a context on the CPU.
  static Device cpu(const CpuOptions& options = {});
  /// Creates a context on GPU `index`. Throws DeviceError if this build has no CUDA, if no GPU can be used,
  /// or if there is no GPU with this index. The message says which.
  static Device cuda(int index, const CudaOptions& options = {});
  /// Creates the device that `text` names: "auto" (GPU 0 if a GPU can be used, else the CPU), "cpu", "cuda"
  /// (GPU 0) or "cuda:N". Throws UsageError for any other text, and DeviceError like cuda().
  static Device parse(std::string_view text, const CpuOptions& options = {}, const CudaOptions& cuda = {});
  /// Creates the GPU with index `local_rank` if any GPU can be used, else the CPU. Throws DeviceError if
  /// there are GPUs but none with this index.
  static Device best(int local_rank = 0);

  DeviceKind kind() const;
  int index() const;
  std::string name() const;  // "cpu", "cuda:1"
  /// Returns the hardware and library versions that entries of algorithm_cache() are valid for:
  /// "NVIDIA H200, sm_90, cuDNN 9.19.0". Returns "" for the CPU, which does not autotune.
  std::string hardware() const;
  /// Returns the UUID of the GPU, which is the same in all processes: "GPU-1f3a…". Returns "" for the CPU.
  std::string uuid() const;
  int compute_capability() const;  // 90 means 9.0; 0 for the CPU
  /// Returns the compute stream.
  Stream stream() const;
  /// Returns the allocator of the device's memory.
  CachingAllocator& memory() const;
  /// Returns the allocator of host memory for asynchronous copies to and from this device: pinned memory for
  /// a GPU, the device's own memory for the CPU.
  CachingAllocator& staging() const { return host().memory(); }
  /// Returns a CPU device whose memory is staging(). Host tensors that are copied to or from this device
  /// should be on it. For the CPU, returns the device itself.
  Device host() const;
  /// Returns the results of autotuning on the compute stream.
  AlgorithmCache& algorithm_cache() const;
  /// Enables or disables autotuning, which takes time at the first use of each problem. Without it, problems
  /// that are not in algorithm_cache() use the first algorithm that the library suggests. Has no effect on
  /// the CPU.
  void set_autotune(bool enabled) const;
  /// Blocks until all work on the compute stream is complete.
  void synchronize() const;

  /// Returns whether both handles refer to the same context, with the same stream and allocator.
  bool is(const Device& other) const { return state_ == other.state_; }

  /// Compares kind and index. Equal devices may be different contexts on the same hardware.
  friend bool operator==(const Device& a, const Device& b) {
    return a.state_ == b.state_ || (a.kind() == b.kind() && a.index() == b.index());
  }

 private:
  struct State;
  /// Creates a CPU context. A memory_limit of 0 means no limit here.
  static std::shared_ptr<State> make_cpu(const CpuOptions& options, std::unique_ptr<MemorySource> source);
  /// Creates a context on GPU `index`, which must exist.
  static Device make_cuda(int index, const CudaOptions& options);
  explicit Device(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Copies `from` on from_device to `to` on to_device, which may be the same device. The views must have equal
/// shapes and dtypes. The copy is ordered on both compute streams. Blocks until the host memory involved may
/// be reused.
void copy_bytes(const Device& from_device, ConstView from, const Device& to_device, View to);

/// Like copy_bytes, but does not block. Between a GPU and the host, the host side must be in the staging()
/// memory of that GPU. It must stay allocated and unchanged until the GPU has done the copy: record an event
/// after this call, and wait for it before the bytes are read, overwritten or released. With other host
/// memory the result is the same, but the call may block.
void copy_bytes_async(const Device& from_device, ConstView from, const Device& to_device, View to);

}  // namespace convoy
