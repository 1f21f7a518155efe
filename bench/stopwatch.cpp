#include "bench/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace convoy::bench {

double seconds_of(const Device& device, const std::function<void()>& work) {
  device.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  work();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int calls_to_time(const Device& device, double seconds) {
  constexpr int kOnAGpu = 20;  // a launch costs less than a kernel takes
  constexpr double kSeconds = 5e-3, kMost = 1000;
  if (device.kind() != DeviceKind::cpu) return kOnAGpu;
  return static_cast<int>(std::clamp(std::ceil(kSeconds / std::max(seconds, 1e-9)), 1.0, kMost));
}

}  // namespace convoy::bench
