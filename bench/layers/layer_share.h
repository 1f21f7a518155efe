// Measures the convolutions and batch norms of a network in isolation, relative to a whole training step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/models/model.h"

namespace convoy::bench {

/// The network and batch of a step.
struct StepChoice {
  std::string model = "resnet18";
  std::int64_t batch = 128;
  std::int64_t image_size = 32;
};

/// A convolution and the batch norm that follows it.
struct LayerPair {
  std::string name;  // the convolution's: "layer2.0.conv1"
  std::string type;  // "Conv2d 64 -> 128, 3x3 stride 2 padding 1"
  nn::Module* convolution = nullptr;
  nn::Module* norm = nullptr;
  Shape input, output;        // including the batch dimension
  bool takes_images = false;  // the gradient of the input is not computed
};

/// Returns all pairs in the order of execution; `model` must outlive them. Throws UsageError if the network
/// has no convolution, or one that is not followed by a batch norm.
std::vector<LayerPair> layer_pairs(const models::Model& model, std::int64_t batch);

/// The times per round, in milliseconds: of each pair (forward and backward with all gradients) and of a
/// whole step.
struct LayerShare {
  std::vector<LayerPair> pairs;
  std::vector<std::vector<double>> pair_ms;  // [rounds, pairs]
  std::vector<double> step_ms;               // [rounds]

  /// Returns the sum of the pairs' times divided by the time of the step, per round.
  std::vector<double> shares() const;
};

/// Measures the pairs and the step in alternation, after `warmup` rounds that do not count. The step is forward,
/// backward and SGD with momentum on a batch of constant images. `device` must be a CPU.
LayerShare measure_layers(const StepChoice& choice, int rounds, int warmup, const DeviceContext& device);

/// Returns the contents of the file of --json.
nlohmann::ordered_json to_json(const LayerShare& share);
/// Prints the table to stdout.
void print(const LayerShare& share);

}  // namespace convoy::bench
