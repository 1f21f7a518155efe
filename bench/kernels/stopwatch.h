// Timing of work on a device.
#pragma once

#include <functional>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy::bench {

/// Returns the wall time of `work` in seconds, from an idle device until it is idle again.
double seconds_of(const DeviceContext& device, const std::function<void()>& work);

/// Returns the number of calls to make between two synchronizations if one call takes `seconds`. On a GPU the
/// number is fixed and large enough that it does not wait for the host. On the CPU, where each call blocks,
/// the calls take a few milliseconds together.
int calls_to_time(const DeviceContext& device, double seconds);

}  // namespace convoy::bench
