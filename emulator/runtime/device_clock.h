// The clock that events of emulated GPUs record.
#pragma once

namespace convoy::emulator {

/// Returns milliseconds since an arbitrary origin. The caller must hold the driver's lock.
double device_ms();
/// Selects whether the clock runs with the host's, which is the default, or only advances by
/// simulate_device_ms().
void follow_host_clock(bool follow);
/// Advances the clock so that work that took `actual` milliseconds on the host appears to take `simulated`.
void simulate_device_ms(double actual, double simulated);

}  // namespace convoy::emulator
