#include "convoy/kernels/runtime/cuda/device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/compiled_code.h"
#include "convoy/kernels/runtime/cuda/facts.h"
#include "convoy/kernels/runtime/cuda/side_stream.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/device_context_state.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

/// Makes `device` current and calls `allocate`. Returns nullptr if the device has not enough memory.
template <class Allocate>
void* allocate_on(int device, Allocate&& allocate) {
  CUDA_CHECK(cudaSetDevice(device));
  void* block = nullptr;
  const cudaError_t status = allocate(&block);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which the next launch would report otherwise
    return nullptr;
  }
  CUDA_CHECK(status);
  return block;
}

class CudaMemory final : public MemorySource {
 public:
  explicit CudaMemory(int device) : device_(device) {}

  void* allocate(std::size_t bytes) override {
    return allocate_on(device_, [&](void** block) { return cudaMalloc(block, bytes); });
  }
  void release(void* block, std::size_t) noexcept override {
    cudaSetDevice(device_);  // without this call, a new thread would create a context on GPU 0
    cudaFree(block);
  }
  std::size_t segment_bytes() const override { return std::size_t{32} << 20; }
  std::string name() const override { return fmt::format("cuda:{}", device_); }
  std::size_t free_bytes() const override {
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaSetDevice(device_));
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  std::string advice() const override {
    std::size_t free = 0, total = 0;
    cudaSetDevice(device_);
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return MemorySource::advice();
    return fmt::format("the GPU has {} of {} free, counting all processes; {}", format_bytes(free),
                       format_bytes(total), MemorySource::advice());
  }

 private:
  int device_;
};

class CudaPinnedMemory final : public MemorySource {
 public:
  explicit CudaPinnedMemory(int device) : device_(device) {}

  void* allocate(std::size_t bytes) override {
    return allocate_on(device_,
                       [&](void** block) { return cudaHostAlloc(block, bytes, cudaHostAllocDefault); });
  }
  void release(void* block, std::size_t) noexcept override {
    cudaSetDevice(device_);
    cudaFreeHost(block);
  }
  std::string name() const override { return fmt::format("the pinned host memory of cuda:{}", device_); }

 private:
  int device_;
};

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties;
}

bool is_pinned(const void* host_memory) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, host_memory));
  return attributes.type == cudaMemoryTypeHost;
}

/// Copies between two arrays on GPUs. The copy runs after all previous work and before all later work on both
/// streams, which may be the same. A peer copy, whose capture CUDA does not document, is used only between GPUs.
void copy_between_gpus(CudaStream& from_stream, ConstView from, CudaStream& to_stream, View to) {
  if (&from_stream != &to_stream) {
    CudaEvent ready(to_stream.device());
    to_stream.record(ready);
    from_stream.wait(ready);
  }
  from_stream.make_current();
  if (from_stream.device() == to_stream.device()) {
    CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, from_stream.handle()));
  } else {
    CUDA_CHECK(cudaMemcpyPeerAsync(to.data, to_stream.device(), from.data, from_stream.device(), from.bytes(),
                                   from_stream.handle()));
  }
  if (&from_stream != &to_stream) {
    CudaEvent copied(from_stream.device());
    from_stream.record(copied);
    to_stream.wait(copied);
  }
}

}  // namespace

std::unique_ptr<MemorySource> cuda_memory(int device) { return std::make_unique<CudaMemory>(device); }

std::unique_ptr<MemorySource> cuda_pinned_memory(int device) {
  return std::make_unique<CudaPinnedMemory>(device);
}

std::string cuda_version_text(int coded) { return fmt::format("{}.{}", coded / 1000, coded % 1000 / 10); }

std::string cuda_uuid_text(const cudaDeviceProp& properties) {
  if (std::strstr(properties.name, " MIG ") != nullptr)  // as in "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    return fmt::format("MIG-{:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID,
                       properties.pciDeviceID);
  std::string text = "GPU-";
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string explain_no_gpu(int driver_version, cudaError_t status) {
  if (driver_version == 0) return "no NVIDIA driver on this machine; use the CPU, or install one";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this build needs {}; update the driver",
        cuda_version_text(driver_version), cuda_version_text(CUDART_VERSION));
  if (status == cudaErrorNoDevice || status == cudaSuccess) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible != nullptr ? fmt::format("no GPU is visible: CUDA_VISIBLE_DEVICES is '{}'", visible)
                              : std::string("the NVIDIA driver finds no GPU; see nvidia-smi");
  }
  return fmt::format("the NVIDIA driver cannot be used: {} ({})", cudaGetErrorString(status),
                     cudaGetErrorName(status));
}

CudaAvailability cuda_availability() {
  // Queries the version first. Without a driver, cudaGetDeviceCount returns the same error as for an old
  // driver.
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess) driver_version = 0;
  int count = 0;
  const cudaError_t status = driver_version > 0 ? cudaGetDeviceCount(&count) : cudaErrorInsufficientDriver;
  cudaGetLastError();  // clears the error, which `reason` reports
  if (status != cudaSuccess || count == 0)
    return {.count = 0, .reason = explain_no_gpu(driver_version, status)};
  return {.count = count, .reason = ""};
}

std::shared_ptr<DeviceContext::State> DeviceContext::make_cuda(int index, const CudaOptions& options) {
  struct CudaState final : State {
    CudaState(int gpu, const CudaOptions& chosen)
        : State(Device::cuda(gpu), std::make_shared<CachingAllocator>(
                                       cuda_memory(gpu), 0, CachingAllocator::policy_from_environment())),
          properties(properties_of(gpu)),
          compute(gpu, *memory, {.cuda = chosen, .algorithms = &algorithms}) {
      architecture_of_code(gpu);  // throws if there is none
      host = make_cpu(0, std::make_shared<CachingAllocator>(cuda_pinned_memory(gpu), 0,
                                                            CachingAllocator::policy_from_environment()));
    }
    Stream stream() override { return std::ref(compute); }
    void synchronize() override { compute.synchronize(); }
    void set_autotune(bool enabled) override {
      compute.set_autotune(enabled);
      if (side) side->stream().set_autotune(enabled);
    }
    std::vector<std::string> take_warnings() override {
      std::vector<std::string> warnings = compute.take_warnings();
      if (side)
        for (std::string& warning : side->stream().take_warnings()) warnings.push_back(std::move(warning));
      return warnings;
    }
    std::uint64_t enqueue_on_side_stream(std::function<void(const Stream&)> work) override {
      if (!side) side.emplace(compute);
      return side->enqueue(std::move(work));
    }
    void wait_for_side_stream(std::uint64_t number) override {
      if (side) side->wait(number);
    }
    void wait_for_side_stream(const Stream& stream) override {
      if (side) side->let_wait(stream_as<CudaStream>(stream));
    }
    void join_side_stream() override {
      if (side) side->end();
    }
    std::string hardware() const override {
      const std::string cudnn = cudnn_version_text();
      return fmt::format("{}, sm_{}{}", properties.name, compute_capability(),
                         cudnn.empty() ? "" : ", " + cudnn);
    }
    std::string uuid() const override { return cuda_uuid_text(properties); }
    int compute_capability() const override { return 10 * properties.major + properties.minor; }

    const cudaDeviceProp properties;
    // Its constructor makes this GPU current before the first call that creates a context. Otherwise a
    // process that uses another GPU would also create a context on GPU 0.
    CudaStream compute;
    std::optional<SideStream> side;
  };
  return std::make_shared<CudaState>(index, options);
}

void copy_bytes_async(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device,
                      View to) {
  if (!copies_data(from_device, to_device) || from.bytes() == 0) return;
  const bool from_gpu = from_device.kind() == DeviceKind::cuda;
  const bool to_gpu = to_device.kind() == DeviceKind::cuda;
  if (from_gpu && to_gpu) {
    copy_between_gpus(stream_as<CudaStream>(from_device.stream()), from,
                      stream_as<CudaStream>(to_device.stream()), to);
  } else if (from_gpu || to_gpu) {
    CudaStream& stream = stream_as<CudaStream>((from_gpu ? from_device : to_device).stream());
    // In a replay, the address of pageable memory could belong to another object.
    if (stream.is_capturing() && !is_pinned(from_gpu ? to.data : from.data))
      throw CaptureError(
          "cannot capture a copy between a GPU and host memory that is not its staging memory; allocate the "
          "host memory with DeviceContext::staging()");
    stream.make_current();
    CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, stream.handle()));
  } else {
    std::memcpy(to.data, from.data, from.bytes());
  }
}

void copy_bytes(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device, View to) {
  if (from_device.kind() == to_device.kind()) return copy_bytes_async(from_device, from, to_device, to);
  if (!copies_data(from_device, to_device)) return;
  const DeviceContext& gpu = from_device.kind() == DeviceKind::cuda ? from_device : to_device;
  if (from.bytes() > 0 && stream_as<CudaStream>(gpu.stream()).is_capturing())
    throw CaptureError("cannot capture a blocking copy between a GPU and the host; use copy_bytes_async");
  copy_bytes_async(from_device, from, to_device, to);
  gpu.synchronize();  // the caller may read or reuse the host side at once
}

CudaFacts cuda_facts() {
  CudaFacts facts{
      .is_built_in = true, .needs = cuda_version_text(CUDART_VERSION), .code = compiled_architectures()};
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version > 0)
    facts.supports = cuda_version_text(driver_version);
  for (std::string& text : std::vector{cudnn_version_text(), cublaslt_version_text()})
    if (!text.empty()) facts.libraries.push_back(std::move(text));
  const CudaAvailability available = cuda_availability();
  facts.reason = available.reason;
  for (int index = 0; index < available.count; ++index) {
    const cudaDeviceProp properties = properties_of(index);
    facts.gpus.push_back({.name = properties.name,
                          .uuid = cuda_uuid_text(properties),
                          .compute_capability = 10 * properties.major + properties.minor,
                          .bytes = properties.totalGlobalMem});
  }
  return facts;
}

}  // namespace convoy
