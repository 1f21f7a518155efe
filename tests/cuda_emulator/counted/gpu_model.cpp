#include "tests/cuda_emulator/counted/gpu_model.h"

#include <algorithm>
#include <cmath>

namespace convoy::bench {

GpuModel h100_model() {
  return {.name = "H100 SXM",
          .multiprocessors = 132,
          .multiprocessor_threads = 2048,
          .memory_bytes_per_second = 0.9 * 3.35e12,
          .cache_bytes_per_second = 5.5e12,
          .launch_seconds = 2e-6,
          .host_bytes_per_second = 50e9,
          .half_flops_per_second = 0.45 * 989e12,
          .float_flops_per_second = 0.8 * 67e12,
          .double_flops_per_second = 0.8 * 67e12,
          .wgmma_flops_per_second = 0.75 * 989e12,
          .wavefronts_per_second = 132 * 1.83e9};
}

namespace {

double operation_seconds(const GpuModel& gpu, const CountedLaunch& launch) {
  const bool is_host_copy = launch.name == "copy to the GPU" || launch.name == "copy to the host";
  const double memory = static_cast<double>(launch.bytes()) /
                        (is_host_copy ? gpu.host_bytes_per_second : gpu.memory_bytes_per_second);
  const double flops_per_second = launch.element_bytes == 2   ? gpu.half_flops_per_second
                                  : launch.element_bytes == 4 ? gpu.float_flops_per_second
                                                              : gpu.double_flops_per_second;
  return gpu.launch_seconds + std::max(memory, static_cast<double>(launch.flops) / flops_per_second);
}

}  // namespace

double predicted_seconds(const GpuModel& gpu, const CountedLaunch& launch) {
  if (!launch.is_kernel) return operation_seconds(gpu, launch);
  constexpr double kSectorBytes = 32;
  const auto blocks = static_cast<double>(launch.blocks);
  const double wave = gpu.multiprocessors * (gpu.multiprocessor_threads / std::max(1, launch.block_threads));
  double busy = 1;  // the share of the GPU that works
  if (blocks < gpu.multiprocessors) busy = blocks / gpu.multiprocessors;
  if (blocks > wave) busy = blocks / wave / std::ceil(blocks / wave);
  const double memory = static_cast<double>(launch.bytes()) / gpu.memory_bytes_per_second;
  const double cache = kSectorBytes * static_cast<double>(launch.loads.sectors + launch.stores.sectors) /
                       gpu.cache_bytes_per_second;
  const double tensor_cores = static_cast<double>(launch.flops) / gpu.wgmma_flops_per_second;
  const double shared = static_cast<double>(launch.shared_wavefronts) / gpu.wavefronts_per_second;
  return gpu.launch_seconds + std::max({memory, cache, tensor_cores, shared}) / busy;
}

}  // namespace convoy::bench
