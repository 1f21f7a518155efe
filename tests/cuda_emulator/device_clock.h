// The time that events of emulated GPUs record.
#pragma once

namespace convoy::emulator {

/// Milliseconds since some moment. The driver's lock is held.
double device_ms();
/// Work that ran for `actual` milliseconds of the host passes for one that took `pretended`.
void pretend_device_ms(double actual, double pretended);

}  // namespace convoy::emulator
