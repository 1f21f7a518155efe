// The tables and the trace of a profile.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/profile/step_profile.h"
#include "convoy/engine/nn/module.h"

namespace convoy {

/// Returns a table of the operations that take the most time, by module and operation, as mean per step: time
/// forward and backward, share, FLOP/s, bytes/s, and the shape of the result. Has at most `rows` rows and one
/// for all others.
std::string format_profile(const StepProfile& profile, std::size_t rows = 20);

/// Returns the size of all parameters and buffers of a module, with low-precision copies.
std::size_t bytes_of(const nn::Module& module);

/// Returns a table of what lives at the peak of the last step: `known` parts of the memory from before the
/// step, such as the parameters, and what the step itself allocated, at most `rows` rows of it.
std::string format_memory(const MemoryPeak& peak,
                          const std::vector<std::pair<std::string, std::size_t>>& known,
                          std::size_t rows = 15);

/// Returns the calls as a Chrome trace (JSON, for Perfetto): one event per call with shape, FLOPs and bytes,
/// and the memory in use as a counter. The steps follow one another.
std::string profile_trace(const StepProfile& profile);

}  // namespace convoy
