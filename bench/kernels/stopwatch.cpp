#include "bench/kernels/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace convoy::bench {

double seconds_of(const DeviceContext& device, const std::function<void()>& work) {
  device.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  work();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int calls_to_time(const DeviceContext& device, double seconds) {
  constexpr int kGpuCalls = 20;  // a launch takes less time than a kernel
  constexpr double kSeconds = 5e-3, kMax = 1000;
  if (device.kind() != DeviceKind::cpu) return kGpuCalls;
  return static_cast<int>(std::clamp(std::ceil(kSeconds / std::max(seconds, 1e-9)), 1.0, kMax));
}

}  // namespace convoy::bench
