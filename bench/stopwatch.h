// Seconds of work on a device.
#pragma once

#include <functional>

#include "kernels/runtime/device.h"

namespace convoy::bench {

/// Wall seconds of `work`, from an idle device until it is idle again.
double seconds_of(const Device& device, const std::function<void()>& work);

/// How many calls to make between two synchronizations: on a GPU many, so that it does not wait for the host;
/// on the CPU, which has done each call when it returns, as many as take some milliseconds if one takes
/// `seconds`.
int calls_to_time(const Device& device, double seconds);

}  // namespace convoy::bench
