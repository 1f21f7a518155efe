// Conformance cases that only the NCCL communicator has to pass, for emulated and real GPUs.
#pragma once

#include "tests/comm/transport/conformance.h"

namespace convoy::testing {

/// Returns cases about captured collectives, mismatches that are not compared, and ranks that are missing,
/// exit or abort while their peers wait only on the GPU.
std::span<const ConformanceCase> nccl_cases();

/// Runs the first 32 all-reduces, whose signatures are always compared, and waits for them.
void run_compared_collectives(dist::Communicator& comm);

}  // namespace convoy::testing
