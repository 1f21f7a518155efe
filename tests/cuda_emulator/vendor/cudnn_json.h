// The JSON text of an execution plan (CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION).
#pragma once

#include <string>
#include <string_view>

#include "tests/cuda_emulator/vendor/cudnn_engine.h"

namespace convoy::emulator {

/// What the text stores. The graph's GPU is not stored.
struct StoredPlan {
  Graph graph;
  EngineChoice choice;
};

/// Returns the text, which also has the version of cuDNN, the properties of the GPU and the version of its
/// driver, as that of the real library (9.19).
std::string to_json(const StoredPlan& plan);
/// Returns the plan of such a text. Throws a CudnnRefusal with the status of the real library: BAD_PARAM for
/// damaged text, SUBLIBRARY_VERSION_MISMATCH for another version, NOT_SUPPORTED_ARCH_MISMATCH for another GPU
/// or driver.
StoredPlan plan_from_json(std::string_view text);

}  // namespace convoy::emulator
