#include "tests/cuda_emulator/runtime/device_clock.h"

#include <chrono>

namespace convoy::emulator {
namespace {

double ahead_ms = 0;  // relative to the host's clock

}  // namespace

double device_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count() + ahead_ms;
}

void simulate_device_ms(double actual, double simulated) { ahead_ms += simulated - actual; }

}  // namespace convoy::emulator
