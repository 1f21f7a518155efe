// ModelCase: an op as a training step of a network runs it: with which shapes, how often, and at what cost.
// bench/ measures these; tests/bench compares them with the graphs that the networks record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/op_cases/op_case.h"

namespace convoy::testing {

/// What an argument is to the op.
struct Argument {
  DType dtype = DType::f32;
  bool is_parameter = false;   // a leaf, with a gradient of its own; else another op's result, or data
  bool wants_gradient = true;  // not the images, and no frozen parameter
};

/// Counted by the formulas of bench/README.md, section "Kernels and ops".
struct Cost {
  std::int64_t flops = 0;  // a multiply-add is 2
  std::int64_t bytes = 0;  // read and written
};

struct ModelCase {
  std::string network;  // "resnet18"; "ops" for an op that none of the networks has
  OpCase op;            // named "conv2d_3x3_64x128_32px_stride2": the function, then its sizes and options
  std::vector<Argument> arguments;  // one for each of op.inputs
  int count = 1;                    // how often a step runs it
  Cost forward, backward;

  /// "resnet18/conv2d_3x3_64x128_32px_stride2"
  std::string name() const { return network + "/" + op.name; }
};

/// How many images, and the type that a network computes in.
struct Sizing {
  std::int64_t batch = 128;
  DType dtype = DType::f32;
};

// Each distinct op of one training step, once.

/// models/lenet.cpp.
std::vector<ModelCase> lenet_cases(Sizing sizing);
/// models/resnet.cpp, the ResNet-18 with the stem for images of 32 pixels.
std::vector<ModelCase> resnet18_cases(Sizing sizing);
/// The small network with which CIFAR-10 is trained fastest (Jordan, "94% on CIFAR-10 in 3.29 seconds on a
/// single GPU", arXiv:2404.00498): a whitening convolution and three groups of two convolutions, 1.97 million
/// parameters.
std::vector<ModelCase> speed_recipe_cases(Sizing sizing);
/// Ops that none of them has, on a feature map of the ResNet-18's.
std::vector<ModelCase> other_op_cases(Sizing sizing);

std::vector<ModelCase> all_model_cases(Sizing sizing);

}  // namespace convoy::testing
