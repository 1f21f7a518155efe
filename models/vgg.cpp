// VGG networks (Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition",
// arXiv:1409.1556), configuration A, with torchvision's parameter names: features.0 …, classifier.0, 3 and 6.
#include "convoy/engine/nn/layers.h"
#include "convoy/models/models.h"

namespace convoy::models {
namespace {

constexpr int kVggSide = 7;  // pixels that the first linear layer sees

/// Averages pixels along an axis to kVggSide pixels, as torch.nn.AdaptiveAvgPool2d.
Variable averaged(const Variable& x, int axis) {
  const std::int64_t size = x.shape()[axis];
  if (size == kVggSide) return x;
  std::vector<Variable> means;
  for (int i = 0; i < kVggSide; ++i)
    means.push_back(
        mean(slice(x, axis, i * size / kVggSide, ((i + 1) * size + kVggSide - 1) / kVggSide), {axis}, true));
  return concat(means, axis);
}

}  // namespace

Model vgg11(const Options& options) {
  check_plain("vgg11", options);
  constexpr int kPool = 0;
  constexpr int kChannels[] = {64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
  constexpr int kHidden = 4096;
  std::vector<nn::Layer> features;
  int in = static_cast<int>(options.input[2]);
  for (const int channels : kChannels) {
    if (channels == kPool) {
      features.emplace_back(nn::MaxPool2d(2));
      continue;
    }
    features.emplace_back(nn::Conv2d(in, channels, {.padding = 1, .kaiming_fan_out = true}));
    features.emplace_back(nn::ReLU());
    in = channels;
  }
  nn::Sequential net(
      {{"features", nn::Sequential(std::move(features))},
       {"avgpool",
        nn::Function("AdaptiveAvgPool2d 7x7", [](const Variable& x) { return averaged(averaged(x, 1), 2); })},
       {"flatten", nn::Flatten()},
       {"classifier", nn::sequential(nn::Linear(in * kVggSide * kVggSide, kHidden), nn::ReLU(),
                                     nn::Dropout(0.5), nn::Linear(kHidden, kHidden), nn::ReLU(),
                                     nn::Dropout(0.5), nn::Linear(kHidden, options.classes))}});
  return {"vgg11", std::move(net), options.input, options.seed, options.device};
}

}  // namespace convoy::models
