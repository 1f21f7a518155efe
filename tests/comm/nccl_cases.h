// What NCCL's communicator has to do beyond what every communicator does. For emulated GPUs and real ones.
#pragma once

#include "tests/comm/conformance.h"

namespace convoy::testing {

/// Recorded collectives; what was not compared; ranks that are missing, leave or give up while others wait on
/// their GPUs alone.
std::span<const ConformanceCase> nccl_cases();

/// Past the all-reduces that are compared in any case, all of which have ended.
void pass_the_compared(Communicator& comm);

}  // namespace convoy::testing
