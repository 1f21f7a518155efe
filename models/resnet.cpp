// Residual networks (He et al., "Deep residual learning for image recognition", arXiv:1512.03385), with
// torchvision's parameter names: conv1, bn1, layer<group>.<block>.conv1 …, layer<group>.<block>.downsample.0,
// fc.
#include <algorithm>

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::models {
namespace {

using Layers = std::vector<nn::Layer>;

enum class BlockKind : std::uint8_t { basic, bottleneck };

// The structure of a ResNet.
struct ResNetPlan {
  std::string name;
  BlockKind block = BlockKind::basic;
  std::vector<int> groups;  // blocks per group; every group after the first one halves the image size
  int width = 64;           // channels of the first group; every later group doubles them
};

constexpr int kBottleneckExpansion = 4;

// Creates a convolution without bias, because the batch norm after every convolution would cancel it.
nn::Conv2d conv(int in, int out, int kernel, int stride) {
  return {
      in,
      out,
      {.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false, .kaiming_fan_out = true}};
}

// Returns the layers of a basic block: two 3x3 convolutions.
Layers basic_body(int in, int width, int stride) {
  return {{"conv1", conv(in, width, 3, stride)},
          {"bn1", nn::BatchNorm2d(width)},
          {"relu1", nn::ReLU()},
          {"conv2", conv(width, width, 3, 1)},
          {"bn2", nn::BatchNorm2d(width)}};
}

// Returns the layers of a bottleneck block: a 1x1 convolution down to `width` channels, a 3x3 convolution,
// and a 1x1 convolution up to 4 times `width`. The 3x3 convolution has the stride, as in torchvision. In the
// paper the first 1x1 convolution has it, which skips three quarters of the pixels.
Layers bottleneck_body(int in, int width, int stride) {
  const int out = width * kBottleneckExpansion;
  return {{"conv1", conv(in, width, 1, 1)},         {"bn1", nn::BatchNorm2d(width)}, {"relu1", nn::ReLU()},
          {"conv2", conv(width, width, 3, stride)}, {"bn2", nn::BatchNorm2d(width)}, {"relu2", nn::ReLU()},
          {"conv3", conv(width, out, 1, 1)},        {"bn3", nn::BatchNorm2d(out)}};
}

// Creates a residual block. The shortcut is the identity if the shapes match, else a 1x1 convolution and a
// batch norm (option B of the paper).
nn::ResidualBlock block(BlockKind kind, int in, int width, int stride) {
  const bool is_basic = kind == BlockKind::basic;
  const int out = is_basic ? width : width * kBottleneckExpansion;
  nn::Layer shortcut;
  if (stride != 1 || in != out) shortcut = nn::sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out));
  return {is_basic ? basic_body(in, width, stride) : bottleneck_body(in, width, stride), shortcut.module};
}

Layers stem(Stem kind, int channels, int width) {
  if (kind == Stem::cifar)
    return {{"conv1", conv(channels, width, 3, 1)}, {"bn1", nn::BatchNorm2d(width)}, {"relu", nn::ReLU()}};
  return {{"conv1", conv(channels, width, 7, 2)},
          {"bn1", nn::BatchNorm2d(width)},
          {"relu", nn::ReLU()},
          {"maxpool", nn::MaxPool2d({.kernel = 3, .stride = 2, .padding = 1})}};
}

Model resnet(const ResNetPlan& plan, const Options& options) {
  check(options.input.rank() == 3, "{}: found an input of shape {}, expected [H, W, C]", plan.name,
        options.input.text());
  check(!options.activation, "{}: found an activation, but this model has no choice; leave it unset",
        plan.name);
  Layers layers =
      stem(resolve_stem(options.stem, options.input), static_cast<int>(options.input[2]), plan.width);

  int channels = plan.width;
  int width = plan.width;
  for (std::size_t group = 0; group < plan.groups.size(); ++group, width *= 2) {
    Layers blocks;
    for (int i = 0; i < plan.groups[group]; ++i) {
      const int stride = group > 0 && i == 0 ? 2 : 1;
      blocks.emplace_back(block(plan.block, channels, width, stride));
      channels = plan.block == BlockKind::basic ? width : width * kBottleneckExpansion;
    }
    layers.emplace_back("layer" + std::to_string(group + 1), nn::Sequential(std::move(blocks)));
  }
  layers.emplace_back("avgpool", nn::GlobalAvgPool2d());
  layers.emplace_back("fc", nn::Linear(channels, options.classes));
  return {plan.name, nn::Sequential(std::move(layers)), options.input, options.seed, options.device};
}

}  // namespace

Stem resolve_stem(Stem stem, const Shape& input) {
  constexpr std::int64_t kMaxCifarSide =
      64;  // pixels; above, the cifar stem makes a ResNet-50 13 times as expensive
  if (stem != Stem::automatic) return stem;
  return std::min(input[0], input[1]) > kMaxCifarSide ? Stem::imagenet : Stem::cifar;
}

Model resnet20(const Options& options) {
  check(options.stem != Stem::imagenet,
        "resnet20: found the imagenet stem, but this model supports only the cifar stem");
  Options with_stem = options;
  with_stem.stem = Stem::cifar;
  return resnet({.name = "resnet20", .groups = {3, 3, 3}, .width = 16}, with_stem);
}

Model resnet18(const Options& options) {
  return resnet({.name = "resnet18", .groups = {2, 2, 2, 2}}, options);
}

Model resnet34(const Options& options) {
  return resnet({.name = "resnet34", .groups = {3, 4, 6, 3}}, options);
}

Model resnet50(const Options& options) {
  return resnet({.name = "resnet50", .block = BlockKind::bottleneck, .groups = {3, 4, 6, 3}}, options);
}

Model resnet101(const Options& options) {
  return resnet({.name = "resnet101", .block = BlockKind::bottleneck, .groups = {3, 4, 23, 3}}, options);
}

}  // namespace convoy::models
