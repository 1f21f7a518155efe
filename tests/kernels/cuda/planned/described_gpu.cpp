#include "tests/kernels/cuda/planned/described_gpu.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30, kMiB = 1 << 20;

constexpr GpuDescription kGpus[] = {
    // name, capability, SMs, threads, blocks, shared memory, L2, memory, clocks
    {"A100", 800, 108, 2048, 32, 163 << 10, 40 * kMiB, 80 * kGiB, 1'410'000, 1'593'000},
    {"L40S", 890, 142, 1536, 24, 99 << 10, 96 * kMiB, 48 * kGiB, 2'520'000, 9'001'000},
    {"H100", 900, 132, 2048, 32, 227 << 10, 50 * kMiB, 80 * kGiB, 1'980'000, 2'619'000},
    {"H200", 900, 132, 2048, 32, 227 << 10, 50 * kMiB, 141 * kGiB, 1'980'000, 3'125'000},
    {"B200", 1000, 148, 2048, 32, 227 << 10, 126 * kMiB, 180 * kGiB, 1'965'000, 3'906'000},
};

}  // namespace

std::span<const GpuDescription> gpu_descriptions() { return kGpus; }

const GpuDescription& gpu_description(std::string_view name) {
  return *std::find_if(std::begin(kGpus), std::end(kGpus), [&](const auto& gpu) { return gpu.name == name; });
}

DescribedGpu::DescribedGpu(const GpuDescription& gpu) {
  const std::string json = fmt::format(
      R"({{"deviceName": "{}", "deviceVer": {}, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0,
          "isTccDriver": 0, "supportCoopLaunch": 1, "multiProcessorCount": {}, "warpSize": 32,
          "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
          "maxThreadsPerBlock": 1024, "maxThreadsPerSM": {}, "maxCtasPerSM": {}, "regsPerBlock": 65536,
          "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
          "maxSharedMemoryPerBlockOptin": {}, "reservedSharedMemoryPerBlock": 1024, "l2CacheSize": {},
          "totalGlobalMem": {}, "smClockRateKHz": {}, "memClockRateKHz": {}}})",
      gpu.name, gpu.compute_capability, gpu.multiprocessors, gpu.max_threads_per_multiprocessor,
      gpu.max_blocks_per_multiprocessor, gpu.max_shared_bytes_per_block, gpu.l2_bytes, gpu.memory_bytes,
      gpu.clock_khz, gpu.memory_clock_khz);
  CUDNN_CHECK(cudnnBackendSetAttribute(properties_.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()), json.data()));
  properties_.finalize();
}

void DescribedGpu::configure(kernels::CudnnDescriptor& descriptor) const {
  switch (descriptor.type()) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return descriptor.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties_);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return descriptor.set(CUDNN_ATTR_ENGINE_DEVICEPROP, properties_);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties_);
    default: return;
  }
}

}  // namespace convoy::testing
