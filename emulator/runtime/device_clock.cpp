#include "emulator/runtime/device_clock.h"

#include <chrono>

namespace convoy::emulator {
namespace {

bool follows_host = true;
double ahead_ms = 0;  // relative to the host's clock, or to 0

}  // namespace

double device_ms() {
  if (!follows_host) return ahead_ms;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count() + ahead_ms;
}

void follow_host_clock(bool follow) { follows_host = follow; }

void simulate_device_ms(double actual, double simulated) { ahead_ms += simulated - actual; }

}  // namespace convoy::emulator
