// A data set in memory: u8 images of one size with their labels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace convoy {

/// One split. Images are decoded and resized once, when the set is loaded.
struct ImageSet {
  Tensor images;  // u8 [N, H, W, C], CPU
  Tensor labels;  // i32 [N]

  std::int64_t size() const { return images.defined() ? images.size(0) : 0; }
};

struct DataSet {
  std::string name;                  // "cifar10": for logs and checkpoints
  std::vector<std::string> classes;  // names in label order
  ImageSet train;
  ImageSet test;
  std::string note;                   // where it came from, in one line: "CIFAR-10 (JPEG) from data/cifar10"
  std::vector<std::string> warnings;  // corrupt images skipped, …: each named

  Shape image_shape() const;  // [H, W, C]
};

/// Mean and standard deviation of each channel, of pixels scaled to 0 … 1.
struct ChannelStatistics {
  std::array<float, 4> mean{};
  std::array<float, 4> std{};
};
ChannelStatistics channel_statistics(const ImageSet& set);

}  // namespace convoy
