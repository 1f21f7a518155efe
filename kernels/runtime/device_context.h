// DeviceContext: the compute stream and the memory behind a Device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/algorithm_cache.h"
#include "convoy/kernels/runtime/cuda_options.h"
#include "convoy/kernels/runtime/device.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Options of a context on the CPU.
struct CpuOptions {
  int threads = 0;               // of a kernel; 0: all cores that this process may use
  std::size_t memory_limit = 0;  // bytes; 0: the physical memory of the machine
};

/// A handle to one compute stream and one allocator on a device. Copies share them; they exist as long as any
/// handle or tensor refers to them.
///
/// Several threads may create, copy and query contexts, and use one allocator. The compute stream and the
/// algorithm cache of a context are used by one thread at a time.
///
/// A Device converts to its default context. Programs that need options create a context; while it exists,
/// it is the default, unless there was one before. So functions that are given only a Device use it too.
class DeviceContext {
 public:
  /// Returns the default context of the device, and creates it on first use. That of a GPU and of the meta
  /// device belongs to the process. The CPU has one for each thread, and these share one allocator. Throws
  /// DeviceError like create_cuda().
  DeviceContext(Device device);  // NOLINT(google-explicit-constructor): a Device names its default context
  /// Creates a context on the CPU. It can become the default of the calling thread.
  static DeviceContext create_cpu(const CpuOptions& options = {});
  /// Creates a context on GPU `index`. Throws DeviceError if this build has no CUDA, if no GPU can be used,
  /// or if there is no GPU with this index. The message says which.
  static DeviceContext create_cuda(int index, const CudaOptions& options = {});
  /// Creates a context on `device` with the options for its kind. Throws like create_cuda().
  static DeviceContext create(Device device, const CpuOptions& cpu, const CudaOptions& cuda);

  /// Returns the device of the stream and the memory.
  Device device() const;
  /// Returns the kind of the device.
  DeviceKind kind() const { return device().kind; }
  /// Returns the name of the device: "cpu", "cuda:1" or "meta".
  std::string name() const { return device().name(); }
  /// Returns the hardware and library versions that entries of algorithm_cache() are valid for:
  /// "NVIDIA H200, sm_90, cuDNN 9.19.0". Returns "" for other devices, which do not autotune.
  std::string hardware() const;
  /// Returns the UUID of the GPU, which is the same in all processes: "GPU-1f3a…". Returns "" for others.
  std::string uuid() const;
  /// Returns 10 times the compute capability of a GPU: 90 means 9.0. Returns 0 for other devices.
  int compute_capability() const;
  /// Returns the compute stream, on which all ops of this context run.
  Stream stream() const;
  /// Returns the allocator of the device's memory.
  CachingAllocator& memory() const;
  /// Returns the allocator of host memory for asynchronous copies to and from this device: pinned memory for
  /// a GPU, the device's own memory for the CPU.
  CachingAllocator& staging() const { return host().memory(); }
  /// Returns a CPU context whose memory is staging(). Host tensors that are copied to or from this device
  /// should be on it. For the CPU, returns this context.
  DeviceContext host() const;
  /// Returns the results of autotuning on the compute stream.
  AlgorithmCache& algorithm_cache() const;
  /// Enables or disables autotuning, which takes time at the first use of each problem. Without it, problems
  /// that are not in algorithm_cache() use the first algorithm that the library suggests. Has no effect on
  /// other devices than GPUs.
  void set_autotune(bool enabled) const;
  /// Returns and clears the warnings of kernels since the last call, one line each: for example, that plain
  /// loops replace a library which cannot run a convolution.
  std::vector<std::string> take_warnings() const;
  /// Blocks until all work on the compute stream is complete.
  void synchronize() const;

  /// Calls work(stream) and returns the number of the call. On a GPU, `stream` is a second stream, which
  /// waits for the work on the compute stream so far. The GPU may run it at the same time as later work on
  /// the compute stream, which must not touch the same memory before wait_for_side_stream(number). `work` is
  /// destroyed after the compute stream waits for it, so tensors that it holds live long enough. The work of
  /// several calls runs in order. At most kMaxSideWorks calls are pending, so memory is not held for long. On
  /// other devices, `stream` is the compute stream.
  std::uint64_t enqueue_on_side_stream(std::function<void(const Stream& stream)> work) const;
  static constexpr int kMaxSideWorks = 3;  ///< The maximum number of pending calls.
  /// Makes the compute stream wait for the work with this number. Does not block.
  void wait_for_side_stream(std::uint64_t number) const;
  /// Makes another stream of the device, or the compute stream itself, wait for all work of enqueue_on_side_stream() so
  /// far. The calls stay pending. Does not block.
  void wait_for_side_stream(const Stream& stream) const;
  /// Makes the compute stream wait for all work of enqueue_on_side_stream(). If it throws, as after a failed
  /// capture, nothing is pending any more.
  void join_side_stream() const;

  /// Compares identity: the same stream and the same allocator.
  friend bool operator==(const DeviceContext& a, const DeviceContext& b) { return a.state_ == b.state_; }

 private:
  struct State;
  /// Creates a CPU context on the allocator, which may be shared.
  static std::shared_ptr<State> make_cpu(int threads, std::shared_ptr<CachingAllocator> memory);
  static std::shared_ptr<State> make_meta();
  /// Creates a context on GPU `index`, which must exist.
  static std::shared_ptr<State> make_cuda(int index, const CudaOptions& options);
  /// Like make_cuda(), after a check that the GPU exists.
  static std::shared_ptr<State> checked_cuda(int index, const CudaOptions& options);
  struct Defaults;
  /// Returns the default context of the device, created if there is none.
  static std::shared_ptr<State> default_state(Device device);
  explicit DeviceContext(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// Copies `from` on from_device to `to` on to_device, which may be the same device. The views must have equal
/// shapes and dtypes. The copy is ordered on both compute streams. Blocks until the host memory involved may
/// be reused. A copy to the meta device does nothing; one from it to another device throws
/// UsageError, since it has no data.
void copy_bytes(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device, View to);

/// Like copy_bytes, but does not block. Between a GPU and the host, the host side must be in the staging()
/// memory of that GPU. It must stay allocated and unchanged until the GPU has done the copy: record an event
/// after this call, and wait for it before the bytes are read, overwritten or released. With other host
/// memory the result is the same, but the call may block.
void copy_bytes_async(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device,
                      View to);

}  // namespace convoy
