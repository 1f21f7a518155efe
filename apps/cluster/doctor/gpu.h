// GPU facts of a rank, and the GPU that it uses.
#pragma once

#include <optional>
#include <string>

#include "convoy/apps/cluster/doctor/facts.h"
#include "convoy/comm/bootstrap/rank_info.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy::doctor {

/// Returns the facts that the driver and the PCI bus provide. Creates no CUDA context.
GpuRankFacts examine_gpus();

/// Opens the GPU of this rank, chosen as in every program, and stores its index and memory in `facts`.
/// Returns nullopt if `device` is "cpu" or no GPU can be used; in the second case `facts.reason` says why.
std::optional<DeviceContext> open_gpu(const std::string& device, const dist::RankInfo& rank,
                                      GpuRankFacts& facts);

/// Returns what is wrong with the value of CUDA_VISIBLE_DEVICES, or "". CUDA ignores everything after the
/// first invalid entry. `installed` is the number of installed GPUs, 0 if unknown.
std::string visible_devices_problem(const std::string& value, int installed);

}  // namespace convoy::doctor
