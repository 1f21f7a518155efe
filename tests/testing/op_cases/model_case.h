// ModelCase: an op as one training step of a network runs it, with shapes, number of calls and cost. bench/
// measures these cases; tests/bench compares them with the graphs that the networks record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

/// The role of an op's argument.
struct Argument {
  DType dtype = DType::f32;
  bool is_parameter = false;   // a leaf with its own gradient; else the result of another op, or data
  bool wants_gradient = true;  // false for images and frozen parameters
};

/// One op of a network.
struct ModelCase {
  std::string network;              // "resnet18"; "ops" for an op that none of the networks uses
  OpCase op;                        // "conv2d_3x3_64x128_32px_stride2": function, sizes, options
  std::vector<Argument> arguments;  // one per input of op
  int count = 1;                    // number of calls per step
  OpCost cost;                      // of one call, as the op states it in engine/ops

  /// Returns network and op, such as "resnet18/conv2d_3x3_64x128_32px_stride2".
  std::string name() const { return network + "/" + op.name; }
};

/// The batch size and the type in which a network computes.
struct Sizing {
  std::int64_t batch = 128;
  DType dtype = DType::f32;
};

// The following return each distinct op of one training step once.

/// Returns the ops of the LeNet of models/models.cpp.
std::vector<ModelCase> lenet_cases(Sizing sizing);
/// Returns the ops of the ResNet-18 of models/resnet.cpp with the stem for images of 32 pixels.
std::vector<ModelCase> resnet18_cases(Sizing sizing);
/// Returns the ops of a small network for fast training on CIFAR-10 (Jordan, "94% on CIFAR-10 in 3.29 seconds
/// on a single GPU", arXiv:2404.00498): a whitening convolution and three groups of two convolutions, 1.97
/// million parameters.
std::vector<ModelCase> speed_recipe_cases(Sizing sizing);
/// Returns ops that none of these networks uses, on a feature map of the ResNet-18.
std::vector<ModelCase> other_op_cases(Sizing sizing);

/// Returns all of the above.
std::vector<ModelCase> all_model_cases(Sizing sizing);

}  // namespace convoy::testing
