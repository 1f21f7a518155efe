// The functions of include/cuda_runtime_api.h, implemented with the emulated driver.
#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/runtime/driver.h"
#include "emulator/runtime/runtime.h"

namespace convoy::emulator {
namespace {

thread_local int t_device = 0;                        // set by cudaSetDevice
thread_local cudaError_t t_last_error = cudaSuccess;  // returned by cudaGetLastError

/// Returns the major version. Minor versions are compatible: 13.0 with 13.1, but 12.9 is too old for both.
int major_of(int version) { return version / 1000; }

cudaError_t outcome(const Driver& driver) {
  return driver.report().empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t usable(const Driver& driver) {
  if (major_of(driver.settings.driver_version) < major_of(CUDART_VERSION)) return cudaErrorInsufficientDriver;
  if (driver.settings.gpus == 0) return cudaErrorNoDevice;
  return cudaSuccess;
}

}  // namespace

UncheckedError& unchecked_error() {
  static UncheckedError& error = *new UncheckedError;
  return error;
}

cudaError_t call(const std::function<cudaError_t(Driver&)>& f) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  const cudaError_t status = f(driver);
  if (status == cudaSuccess || status == cudaErrorNotReady) return status;
  t_last_error = status;
  if (driver.settings.has_null_stream && unchecked_error().error == cudaSuccess)
    unchecked_error() = {.error = status, .callers = callers()};
  return status;
}

cudaError_t set_kernel_attribute(const void* kernel, const std::string& name, cudaFuncAttribute attribute,
                                 int value) {
  return on_gpu([&](Driver& driver, int) {
    KernelSettings& settings = driver.kernel_settings(kernel, name);
    const int capability = driver.settings.capability;
    if (value < 0) return cudaErrorInvalidValue;
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
      if (capability < kOldestWithClusters) return cudaErrorNotSupported;
      settings.has_large_clusters = value != 0;
      return cudaSuccess;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize ||
        static_cast<std::size_t>(value) > shared_limit(capability))
      return cudaErrorInvalidValue;
    settings.dynamic_bytes = std::max(kDefaultSharedBytes, static_cast<std::size_t>(value));
    return cudaSuccess;
  });
}

cudaError_t last_error() {
  unchecked_error() = {};
  return t_last_error;
}

cudaError_t on_gpu(const std::function<cudaError_t(Driver&, int gpu)>& f) {
  return call([&](Driver& driver) {
    if (const cudaError_t status = usable(driver); status != cudaSuccess) return status;
    if (t_device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    driver.contexts.insert(t_device);
    const cudaError_t fault = outcome(driver);
    return fault == cudaSuccess ? f(driver, t_device) : fault;
  });
}

cudaError_t on_any_stream(cudaStream_t stream,
                          const std::function<cudaError_t(Driver&, EmulatedStream&)>& f) {
  return on_gpu([&](Driver& driver, int gpu) {
    const bool is_null = stream == nullptr && driver.settings.has_null_stream;
    EmulatedStream* const held = is_null ? driver.null_stream(gpu) : driver.find(stream);
    return held != nullptr ? f(driver, *held) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t on_stream(cudaStream_t stream, const std::function<cudaError_t(Driver&, EmulatedStream&)>& f) {
  return on_any_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    const bool is_lost = held.capture != nullptr && !held.capture->is_valid();
    return is_lost ? cudaErrorStreamCaptureInvalidated : f(driver, held);
  });
}

cudaError_t unsupported(Capture& capture) {
  capture.invalidate();
  return cudaErrorStreamCaptureUnsupported;
}

namespace {

/// Handles a host query of an event that was recorded in a capture: invalidates the capture and returns
/// CUDA's error.
cudaError_t captured(const EmulatedEvent& event) {
  event.capture->invalidate();
  return cudaErrorCapturedEvent;
}

/// Calls `is_ours` for a function that destructors call. It runs even after a fault.
cudaError_t releasing(const std::function<bool(Driver&)>& is_ours) {
  return call([&](Driver& driver) {
    if (t_device < driver.settings.gpus) driver.contexts.insert(t_device);
    const bool known = is_ours(driver);
    driver.free_if_idle();
    const cudaError_t fault = outcome(driver);
    return fault != cudaSuccess || known ? fault : cudaErrorInvalidValue;
  });
}

}  // namespace
}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

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
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorUnsupportedPtxVersion: return "cudaErrorUnsupportedPtxVersion";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorInvalidClusterSize: return "cudaErrorInvalidClusterSize";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaSuccess) last_error();
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorUnsupportedPtxVersion:
      return "the provided PTX was compiled with an unsupported toolchain.";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorInvalidClusterSize: return "cluster misconfiguration";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge:
      return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  const cudaError_t last = last_error();
  t_last_error = cudaSuccess;
  return outcome(driver) == cudaSuccess ? last : outcome(driver);  // a fault stays until reset()
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call([&](Driver& driver) {
    *version = driver.settings.driver_version;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call([&](Driver& driver) {
    *count = driver.settings.gpus;
    return usable(driver);
  });
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Driver& driver) {
    if (const cudaError_t status = usable(driver); status != cudaSuccess) return status;
    if (device < 0 || device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    t_device = device;
    driver.contexts.insert(device);  // creates a context since CUDA 12
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Driver& driver) {
    if (const cudaError_t status = usable(driver); status != cudaSuccess) return status;
    if (device < 0 || device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    *properties = {.name = "Emulated GPU",
                   .uuid = {{'e', 'm', 'u', static_cast<char>(device)}},
                   .totalGlobalMem = driver.settings.memory_bytes,
                   .major = driver.settings.capability / 10,
                   .minor = driver.settings.capability % 10,
                   .multiProcessorCount = driver.settings.multiprocessors,
                   .sharedMemPerBlock = kDefaultSharedBytes,
                   .sharedMemPerBlockOptin = shared_limit(driver.settings.capability),
                   .warpSize = warpSize,
                   .maxThreadsPerBlock = 1024,
                   .maxThreadsDim = {1024, 1024, 64},
                   .maxGridSize = {2'147'483'647, 65'535, 65'535}};
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return on_gpu([&](Driver& driver, int) {
    const auto& settings = driver.settings;
    if (settings.capability < kOldestCode) return cudaErrorNoKernelImageForDevice;
    const int code = settings.capability < settings.code ? kOldestCode : settings.code;
    *attributes = {.ptxVersion = code, .binaryVersion = std::max(code, settings.capability)};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Driver& driver) {
    if (const cudaError_t status = usable(driver); status != cudaSuccess) return status;
    if (device < 0 || device >= driver.settings.gpus) return cudaErrorInvalidDevice;
    const int capability = driver.settings.capability;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = driver.settings.multiprocessors; break;
      case cudaDevAttrComputeCapabilityMajor: *value = capability / 10; break;
      case cudaDevAttrComputeCapabilityMinor: *value = capability % 10; break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(shared_limit(capability));
        break;
      case cudaDevAttrClusterLaunch: *value = capability >= kOldestWithClusters ? 1 : 0; break;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return set_kernel_attribute(kernel, "", attribute, value);
}

// Priorities have no effect: random turns are valid for any priorities.
cudaError_t cudaDeviceGetStreamPriorityRange(int* low, int* high) {
  return on_gpu([&](Driver&, int) {
    *low = 0;
    *high = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return on_gpu([&](Driver& driver, int gpu) {
    const bool is_blocking = flags == 0 && driver.settings.has_null_stream;
    if (!is_blocking && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = driver.add_stream(gpu);
    (*stream)->is_blocking = is_blocking;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return releasing([&](Driver& driver) { return driver.remove_stream(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return on_stream(stream, [](Driver& driver, EmulatedStream& held) {
    if (held.capture != nullptr) return unsupported(*held.capture);
    driver.run_all_of(held);
    return outcome(driver);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return on_gpu([&](Driver& driver, int) {
    *event = driver.add_event((flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return releasing([&](Driver& driver) { return driver.remove_event(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    const bool is_external = flags == cudaEventRecordExternal;
    if (flags != cudaEventRecordDefault && !(is_external && held.capture != nullptr))
      return cudaErrorInvalidValue;
    const auto point = driver.find(event);
    if (point == nullptr) return cudaErrorInvalidResourceHandle;
    driver.record(held, point, is_external);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    const auto point = driver.find(event);
    if (point == nullptr) return cudaErrorInvalidResourceHandle;
    return driver.wait(held, point);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return on_gpu([&](Driver& driver, int) {
    const auto point = driver.find(event);
    if (point == nullptr) return cudaErrorInvalidResourceHandle;
    if (point->capture != nullptr) return captured(*point);
    if (point->reached < point->recorded) return cudaErrorNotReady;
    driver.waited_for(*point);
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return on_gpu([&](Driver& driver, int) {
    const auto point = driver.find(event);
    if (point == nullptr) return cudaErrorInvalidResourceHandle;
    if (point->capture != nullptr) return captured(*point);
    driver.run_until([&] { return point->reached >= point->recorded; });
    driver.waited_for(*point);
    return outcome(driver);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return on_gpu([&](Driver& driver, int) {
    const auto first = driver.find(begin);
    const auto last = driver.find(end);
    for (const auto& point : {first, last}) {
      if (point == nullptr || !point->is_timed) return cudaErrorInvalidResourceHandle;
      if (point->capture != nullptr) return captured(*point);
      if (point->recorded == 0) return cudaErrorInvalidResourceHandle;
      if (point->reached < point->recorded) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(last->reached_ms - first->reached_ms);
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  return on_gpu([&](Driver& driver, int gpu) {
    if (driver.forbids_allocation()) return cudaErrorStreamCaptureUnsupported;
    const std::size_t used = driver.memory.used(gpu);
    const std::size_t limit = driver.settings.memory_bytes;
    if (used > limit || bytes > limit - used) return cudaErrorMemoryAllocation;
    *block = driver.memory.allocate(gpu, bytes);
    return *block != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t convoy::emulator::allocate_on_host(void** block, std::size_t bytes, bool is_managed) {
  return on_gpu([&](Driver& driver, int) {
    if (driver.forbids_allocation()) return cudaErrorStreamCaptureUnsupported;
    const std::size_t used = driver.memory.used_pinned();
    const std::size_t limit = driver.settings.pinned_bytes;
    if (used > limit || bytes > limit - used) return cudaErrorMemoryAllocation;
    *block = driver.memory.allocate_pinned(bytes, is_managed);
    return *block != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  return allocate_on_host(block, bytes, /*is_managed=*/false);
}

namespace convoy::emulator {
namespace {

// CUDA waits for the GPU's work before it frees memory. Here memory is freed when all queues are next empty,
// so that freeing does not impose an order on the streams, on which no program may rely.
cudaError_t free_block(void* block, bool (Memory::*retire)(void*)) {
  if (block == nullptr) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  const cudaError_t released = releasing([&](Driver& driver) {
    if (driver.forbids_release()) {
      status = cudaErrorStreamCaptureUnsupported;
      return true;
    }
    return (driver.memory.*retire)(block);
  });
  return status != cudaSuccess ? status : released;
}

}  // namespace
}  // namespace convoy::emulator

cudaError_t cudaFree(void* block) { return free_block(block, &Memory::retire); }

cudaError_t cudaFreeHost(void* block) { return free_block(block, &Memory::retire_pinned); }

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return on_gpu([&](Driver& driver, int gpu) {
    *total_bytes = driver.settings.memory_bytes;
    *free_bytes = *total_bytes - std::min(*total_bytes, driver.memory.used(gpu));
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return on_gpu([&](Driver& driver, int) {
    attributes->type = driver.memory.is_pinned(pointer, 1)   ? cudaMemoryTypeHost
                       : driver.memory.is_on_gpu(pointer, 1) ? cudaMemoryTypeDevice
                                                             : cudaMemoryTypeUnregistered;
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    if (bytes == 0) return cudaSuccess;
    if (!driver.memory.is_on_gpu(to, bytes)) return cudaErrorInvalidValue;
    driver.transfer(held, to, nullptr, value, bytes);
    return outcome(driver);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    if (bytes == 0) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    // Pinned memory may be on either side.
    const auto is_possible = [&](const void* side, bool is_on_gpu) {
      return driver.memory.is_pinned(side, 1) || driver.memory.is_on_gpu(side, 1) == is_on_gpu;
    };
    const bool is_to_gpu = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool is_from_gpu = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && !(is_possible(to, is_to_gpu) && is_possible(from, is_from_gpu)))
      return cudaErrorInvalidValue;
    // A copy from or to pageable host memory is complete when the call returns.
    const auto is_async = [&](const void* side) {
      return driver.memory.is_on_gpu(side, bytes) || driver.memory.is_pinned(side, bytes);
    };
    const bool is_sync = !is_async(to) || !is_async(from);
    if (is_sync && held.capture != nullptr) return unsupported(*held.capture);
    driver.transfer(held, to, from, 0, bytes);
    if (is_sync) driver.run_all_of(held);
    return outcome(driver);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  call([](Driver& driver) {
    ++driver.peer_copies;
    return cudaSuccess;
  });
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
