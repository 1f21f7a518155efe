// The convolution engines that the fake cuDNN has (vendor.h lists them): what each takes, notes and computes.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_emulator/cudnn_graph.h"

namespace convoy::emulator {

using Knobs = std::map<cudnnBackendKnobType_t, std::int64_t>;

/// A graph that some engine takes: a convolution, or a forward one and then a bias, a ReLU or both.
struct FusedConvolution {
  ConvolutionOperation convolution;
  std::vector<PointwiseOperation> epilogue;

  const Tensor& output() const { return epilogue.empty() ? convolution.output() : epilogue.back().y; }
};

/// Refuses, as NOT_SUPPORTED, a graph that is none.
FusedConvolution fused_convolution(const Graph& graph);

/// Why an engine does not take it; "" where it does.
std::string objection(std::int64_t engine, const FusedConvolution& fused);
std::vector<cudnnBackendNumericalNote_t> notes_of(std::int64_t engine);
/// Refuses knobs, or values of theirs, that the engine has not.
void check_knobs(std::int64_t engine, const Knobs& knobs);
std::size_t workspace_of(std::int64_t engine, const FusedConvolution& fused, const Knobs& knobs);

struct EngineChoice {
  std::int64_t engine = 0;
  Knobs knobs = {};
};
/// Best guess first; refused where there is none.
std::vector<EngineChoice> heuristics(const FusedConvolution& fused, cudnnBackendHeurMode_t mode);

/// Where the arrays of a graph's tensors are.
using Arrays = std::map<std::int64_t, void*>;

/// What an execution does when its turn on the stream comes.
void run(const FusedConvolution& fused, const EngineChoice& choice, const Arrays& arrays, void* workspace);

}  // namespace convoy::emulator
