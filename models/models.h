// The models by name.
#pragma once

#include "models/model.h"

namespace convoy::models {

enum class Stem : std::uint8_t {
  automatic,  // imagenet where both sides have 128 pixels or more, else cifar
  cifar,      // 3x3 convolution, stride 1
  imagenet,   // 7x7 convolution, stride 2, then 3x3 max-pool, stride 2
};

struct Options {
  Shape input{32, 32, 3};  // [H, W, C]
  int classes = 10;
  std::uint64_t seed = 1;
  Stem stem = Stem::automatic;
  Device device = Device::cpu();
};

/// The tutorials' CNN, after LeNet-5 (LeCun et al., 1998): conv 6 k5 - pool - conv 16 k5 - pool - 120 - 84 -
/// classes, ReLU and max-pool. 62,006 parameters for [32, 32, 3]. Names as in PyTorch's CIFAR tutorial:
/// conv1, conv2, fc1 … fc3.
Model lenet(const Options& options = {});
/// ResNet of the CIFAR section of He et al., arXiv:1512.03385: 3 groups of 3 basic blocks, widths 16, 32, 64.
/// Where a block changes the shape its shortcut is a 1x1 convolution and a batch norm (the paper's option B),
/// as in the larger ResNets: 272,474 parameters for [32, 32, 3] and 10 classes (269,722 with the paper's
/// padded shortcuts).
Model resnet20(const Options& options = {});
/// The larger ResNets have torchvision's layers, parameter names and initialisation, with either stem.
Model resnet18(const Options& options = {});
Model resnet34(const Options& options = {});
Model resnet50(const Options& options = {});

/// By name; UsageError with the nearest name and the list of all for any other.
Model make(std::string_view name, const Options& options = {});
std::vector<std::string> names();
/// Of what make() makes.
bool has_batch_norm(std::string_view name);

}  // namespace convoy::models
