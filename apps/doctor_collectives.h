// Collectives whose results are known beforehand, and what they took.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/doctor_facts.h"
#include "comm/communicator.h"

namespace convoy::doctor {

/// An all-gather of ranks' numbers, an all-reduce of `elements` f32, each with its right sum, and the mean
/// time of some more. What fails is in facts.error; the communicator is then of no use any more.
CollectiveFacts try_collectives(Communicator& comm, const Device& device, std::int64_t elements = 1 << 20);

/// Bytes a second that an all-reduce moves, and, corrected for what the ring of so many ranks must move,
/// those of its links: both as nccl-tests have them.
double algorithm_bandwidth(const CollectiveFacts& facts);
double bus_bandwidth(const CollectiveFacts& facts, int world);

/// What an all-gather among so many ranks comes to: "[0 1 2 3]".
std::string expected_gather(int world);

}  // namespace convoy::doctor
