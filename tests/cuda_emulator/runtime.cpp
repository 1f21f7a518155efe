// The functions of include/cuda_runtime_api.h, and those that kernels call, on top of the driver.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda_emulator/driver.h"

namespace {

using convoy::emulator::Driver;
using Operation = EmulatedStream::Operation;

thread_local int t_device = 0;                        // what cudaSetDevice chose
thread_local cudaError_t t_last_error = cudaSuccess;  // what cudaGetLastError gives back

/// Under the driver's lock, as every function here runs; remembers an error as the runtime does.
template <class F>
cudaError_t call(F&& f) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  const cudaError_t status = f(driver);
  if (status != cudaSuccess && status != cudaErrorNotReady) t_last_error = status;
  return status;
}

/// The same for what needs a GPU: without one, the error that the real runtime gives.
template <class F>
cudaError_t on_gpu(F&& f) {
  return call([&](Driver& driver) {
    if (driver.settings.gpus == 0) return cudaErrorInsufficientDriver;
    if (t_device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    return f(driver);
  });
}

cudaError_t outcome(const Driver& driver) {
  return driver.report.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t copy(Driver& driver, void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  driver.push(stream, {.kind = Operation::Kind::work, .work = [=] { std::memcpy(to, from, bytes); }});
  // The host's side of a copy that is not pinned is read, or written, before the call returns.
  const auto may_lag = [&](const void* side) {
    return driver.is_on_device(side, bytes) || driver.is_pinned(side, bytes);
  };
  if (!may_lag(to) || !may_lag(from)) driver.run_until([&] { return stream->queue.empty(); });
  return outcome(driver);
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return std::exchange(t_last_error, cudaSuccess); }

cudaError_t cudaDriverGetVersion(int* version) {
  return call([&](Driver& driver) {
    *version = driver.settings.gpus > 0 ? driver.settings.driver_version : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call([&](Driver& driver) {
    if (driver.settings.gpus == 0 || driver.settings.driver_version < CUDART_VERSION)
      return cudaErrorInsufficientDriver;
    *count = driver.settings.gpus;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = t_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Driver& driver) {
    if (driver.settings.gpus == 0) return cudaErrorInsufficientDriver;
    if (device < 0 || device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    t_device = device;
    driver.contexts.insert(device);  // as of CUDA 12, choosing a device makes its context
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return on_gpu([](Driver& driver) {
    driver.run_all();
    return outcome(driver);
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Driver& driver) {
    if (device < 0 || device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "emulated GPU");
    properties->totalGlobalMem = driver.settings.memory_bytes;
    properties->major = 9;
    properties->multiProcessorCount = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return on_gpu([&](Driver& driver) {
    driver.contexts.insert(t_device);
    *stream = driver.add_stream(t_device);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&](Driver& driver) {
    driver.remove_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return on_gpu([&](Driver& driver) {
    driver.run_until([&] { return stream->queue.empty(); });
    return outcome(driver);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return on_gpu([&](Driver& driver) {
    *event = driver.add_event();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Driver& driver) {
    driver.remove_event(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return on_gpu([&](Driver& driver) {
    const auto held = driver.find(event);
    driver.push(stream,
                {.kind = Operation::Kind::record, .work = {}, .event = held, .ticket = ++held->recorded});
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return on_gpu([&](Driver& driver) {
    const auto held = driver.find(event);
    if (held->reached < held->recorded) return cudaErrorNotReady;
    return outcome(driver);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return on_gpu([&](Driver& driver) {
    const auto held = driver.find(event);
    driver.run_until([&] { return held->reached >= held->recorded; });
    return outcome(driver);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return on_gpu([&](Driver& driver) {
    *milliseconds = static_cast<float>(driver.find(end)->reached_ms - driver.find(begin)->reached_ms);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return on_gpu([&](Driver& driver) {
    const auto held = driver.find(event);
    driver.push(stream, {.kind = Operation::Kind::wait, .work = {}, .event = held, .ticket = held->recorded});
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  return on_gpu([&](Driver& driver) {
    driver.contexts.insert(t_device);
    *block = driver.allocate(t_device, bytes);
    return *block != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* block) {
  return call([&](Driver& driver) {
    return block == nullptr || driver.release(block) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  return on_gpu([&](Driver& driver) {
    *block = driver.allocate_pinned(bytes);
    return *block != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFreeHost(void* block) {
  return call([&](Driver& driver) {
    return block == nullptr || driver.release_pinned(block) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return on_gpu([&](Driver& driver) {
    *total_bytes = driver.settings.memory_bytes;
    *free_bytes = *total_bytes - driver.used(t_device);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return on_gpu([&](Driver& driver) { return copy(driver, to, from, bytes, stream); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return on_gpu([&](Driver& driver) { return copy(driver, to, from, bytes, stream); });
}

cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream) {
  return on_gpu([&](Driver& driver) {
    driver.push(stream, {.kind = Operation::Kind::work, .work = [=] { std::memset(block, value, bytes); }});
    return outcome(driver);
  });
}

namespace convoy::emulator {

cudaError_t check_launch(dim3 grid, dim3 block, std::size_t shared_bytes) {
  return on_gpu([&](Driver& driver) {
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    constexpr unsigned kMostRows = 65535;  // of blocks, on y and z
    if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 2147483647u || grid.y > kMostRows ||
        grid.z > kMostRows)
      return cudaErrorInvalidConfiguration;
    constexpr std::size_t kShared = std::size_t{48} << 10;  // more has to be asked for first
    if (shared_bytes > kShared) return cudaErrorInvalidValue;
    return outcome(driver);
  });
}

void enqueue_kernel(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes, const void* address,
                    std::function<void()> thread) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  driver.launch(
      stream,
      {.number = 0, .grid = grid, .block = block, .shared_bytes = shared_bytes, .thread = std::move(thread)},
      address);
}

void block_barrier(Where where) { current_block().barrier(where); }

const std::uint64_t* warp_meet(unsigned mask, std::uint64_t bits, Where where) {
  return current_block().meet(mask, bits, where);
}

unsigned lane_of_this_thread() { return current_block().lane(); }

void report_foreign_lane(unsigned mask, unsigned source, Where where) {
  char text[80];
  std::snprintf(text, sizeof(text), "takes the value of lane %u, which mask %#x leaves out", source, mask);
  current_block().fault(text, where);
}

void trap(Where where) { current_block().fault("__trap()", where); }

}  // namespace convoy::emulator
