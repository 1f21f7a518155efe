// Conformance cases that only the NCCL communicator has to pass, for emulated and real GPUs.
#pragma once

#include <functional>
#include <memory>

#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/comm/transport/conformance.h"

namespace convoy::testing {

/// Returns cases about captured collectives, mismatches that are not compared, and ranks that are missing,
/// exit or abort while their peers wait only on the GPU.
std::span<const ConformanceCase> nccl_cases();

/// Calls `action`, which must return although `graph` exists. If it has not returned after half a minute, the
/// test fails, and the graph is destroyed so that the test does not hang.
void expect_not_to_await_end_of(std::unique_ptr<CudaGraph>& graph, const std::function<void()>& action);

/// Runs the first 32 all-reduces, whose signatures are always compared, and waits for them.
void run_compared_collectives(dist::Communicator& comm);

}  // namespace convoy::testing
