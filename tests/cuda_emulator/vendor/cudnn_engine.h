// The convolution engines of the emulated cuDNN, which vendor.h lists.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda_emulator/vendor/cudnn_graph.h"

namespace convoy::emulator {

using Knobs = std::map<cudnnBackendKnobType_t, std::int64_t>;

/// A graph that an engine can accept: a convolution, or a forward convolution followed by a bias, a ReLU or
/// both.
struct FusedConvolution {
  ConvolutionOperation convolution;
  std::vector<PointwiseOperation> epilogue;

  const Tensor& output() const { return epilogue.empty() ? convolution.output() : epilogue.back().y; }
};

/// Returns the graph in this form. Throws a CudnnRefusal with NOT_SUPPORTED if no engine accepts it.
FusedConvolution fused_convolution(const Graph& graph);

/// Returns why the engine does not accept the convolution, or "" if it does.
std::string objection(std::int64_t engine, const FusedConvolution& fused);
/// Return the numerical notes and the behavior notes of an engine.
std::vector<cudnnBackendNumericalNote_t> notes_of(std::int64_t engine);
std::vector<cudnnBackendBehaviorNote_t> behavior_of(std::int64_t engine);
/// Throws a CudnnRefusal for knobs or values that the engine does not have.
void check_knobs(std::int64_t engine, const Knobs& knobs);
/// Returns the workspace size in bytes.
std::size_t workspace_of(std::int64_t engine, const FusedConvolution& fused, const Knobs& knobs);

/// An engine and its knobs.
struct EngineChoice {
  std::int64_t engine = 0;
  Knobs knobs = {};
};
/// Returns the configurations that the heuristics list, the best first. Throws a CudnnRefusal if there is
/// none.
std::vector<EngineChoice> heuristics(const FusedConvolution& fused, cudnnBackendHeurMode_t mode);

/// The addresses of a graph's tensors, by id.
using Arrays = std::map<std::int64_t, void*>;

/// Computes the convolution. Called when the stream reaches the execution.
void run(const FusedConvolution& fused, const EngineChoice& choice, const Arrays& arrays, void* workspace);

}  // namespace convoy::emulator
