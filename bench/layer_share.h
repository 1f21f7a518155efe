// The convolutions and batch norms of a network, each by itself, beside the whole step that they are part of.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/overlap_step.h"

namespace convoy::bench {

/// A convolution and the batch norm behind it.
struct LayerPair {
  std::string name;  // of the convolution: "layer2.0.conv1"
  std::string type;  // "Conv2d 64 -> 128, 3x3 stride 2 padding 1"
  Module* convolution = nullptr;
  Module* norm = nullptr;
  Shape input, output;        // of the pair, with the batch
  bool takes_images = false;  // nobody wants the gradient of its input
};

/// All of them, in the order in which they run. UsageError for a network that has none, or a convolution
/// without a batch norm. `model` keeps the modules.
std::vector<LayerPair> layer_pairs(const Model& model, std::int64_t batch);

/// By round: milliseconds of each pair, forward and backward with all gradients, and of a whole step.
struct LayerShare {
  std::vector<LayerPair> pairs;
  std::vector<std::vector<double>> pair_ms;  // [rounds, pairs]
  std::vector<double> step_ms;               // [rounds]

  /// By round: the pairs' sum over the step.
  std::vector<double> shares() const;
};

/// In turn, after `warmup` rounds that do not count. The step is LocalStep's: no loader. device: a CPU.
LayerShare measure_layers(const StepChoice& choice, int rounds, int warmup, const Device& device);

nlohmann::ordered_json to_json(const LayerShare& share);
void print(const LayerShare& share);

}  // namespace convoy::bench
