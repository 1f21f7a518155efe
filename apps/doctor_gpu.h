// What the driver tells of GPUs, and the one that a rank takes.
#pragma once

#include <optional>
#include <string>

#include "apps/doctor_facts.h"
#include "comm/rank_info.h"
#include "kernels/runtime/device.h"

namespace convoy::doctor {

/// Makes a context on no GPU.
GpuRankFacts examine_gpus();

/// The GPU that a rank of this number takes, as in every program, and what is free on it, in facts; nothing
/// where --device is "cpu", or none can be used: then facts say why.
std::optional<Device> open_gpu(const std::string& device, const RankInfo& rank, GpuRankFacts& facts);

/// What keeps CUDA_VISIBLE_DEVICES from naming GPUs: at what is none of them it ends. "" where nothing does.
std::string visible_devices_problem(const std::string& value, int installed);

}  // namespace convoy::doctor
