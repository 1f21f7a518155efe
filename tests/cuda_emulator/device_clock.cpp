#include "tests/cuda_emulator/device_clock.h"

#include <chrono>

namespace convoy::emulator {
namespace {

double ahead_ms = 0;  // of the host's clock

}  // namespace

double device_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count() + ahead_ms;
}

void pretend_device_ms(double actual, double pretended) { ahead_ms += pretended - actual; }

}  // namespace convoy::emulator
