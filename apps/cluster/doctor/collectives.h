// Test collectives with known results, and their bandwidth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "convoy/apps/cluster/doctor/facts.h"
#include "convoy/comm/core/communicator.h"

namespace convoy::doctor {

/// Runs an all-gather of the rank numbers and an all-reduce of `elements` f32 values, compares the sums with
/// the expected ones, and measures the mean time of a few more all-reduces. Collective call. Does not throw:
/// an error is returned in CollectiveFacts::error, and the communicator is aborted.
CollectiveFacts try_collectives(dist::Communicator& comm, const DeviceContext& device,
                                std::int64_t elements = 1 << 20);

/// Returns the bytes of the all-reduce divided by its time, in B/s, as nccl-tests defines algbw; 0 if it was
/// not timed.
double algorithm_bandwidth(const CollectiveFacts& facts);
/// Returns the bandwidth per link in B/s, algbw * 2 (n - 1) / n for n ranks, as nccl-tests defines busbw.
double bus_bandwidth(const CollectiveFacts& facts, int world_size);

/// Returns the expected result of the all-gather for this world size: "[0 1 2 3]".
std::string expected_gather(int world_size);

}  // namespace convoy::doctor
