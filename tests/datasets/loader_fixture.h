// A small data set, and helpers that copy batches to plain values, so that loaders can be compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "convoy/datasets/loader/loader.h"

namespace convoy::testing {

inline constexpr std::int64_t kHeight = 6, kWidth = 5, kChannels = 3;
inline constexpr std::int64_t kPixels = kHeight * kWidth * kChannels;

/// Returns a set in which every pixel differs from adjacent pixels and from the same pixel of other images.
/// The label is id mod 7.
inline data::ImageSet make_set(std::int64_t n) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(n * kPixels));
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(i * 37 + i / 256 * 11);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 7);
  const DeviceContext device = Device::cpu();
  return {.images = Tensor::from(pixels, {n, kHeight, kWidth, kChannels}, device),
          .labels = Tensor::from(labels, {n}, device)};
}

inline data::TransformSpec random_transform() {
  return {.augment = {.crop_padding = 2,
                      .reflect = true,
                      .flip = true,
                      .cutout = 2,
                      .mean = {0.5f, 0.4f, 0.3f},
                      .inverse_std = {4, 5, 6}}};
}

/// The contents of a batch as plain values.
struct Copy {
  std::vector<float> images;
  std::vector<std::int32_t> labels, ids, partner_labels;
  double weight;  // of the labels
  std::int64_t epoch, step, index, global_count;
  friend bool operator==(const Copy&, const Copy&) = default;
};

/// Returns images of any type as floats.
inline Copy copy_of(const data::Batch& batch) {
  EXPECT_EQ(batch.images.shape(), (Shape{batch.ids.numel(), kHeight, kWidth, kChannels}));
  EXPECT_EQ(batch.labels.numel(), batch.ids.numel());
  return {batch.images.to(DType::f32).to_vector<float>(),
          batch.labels.to_vector<std::int32_t>(),
          batch.ids.to_vector<std::int32_t>(),
          batch.partner_labels.defined() ? batch.partner_labels.to_vector<std::int32_t>()
                                         : std::vector<std::int32_t>(),
          batch.mixing.weight,
          batch.epoch,
          batch.step,
          batch.index,
          batch.global_count};
}

/// Returns all batches from the current position of the loader to the end of its epoch.
inline std::vector<Copy> rest_of_epoch(data::DataLoader& loader) {
  std::vector<Copy> copies;
  while (true) {
    const std::vector<data::Batch> update = loader.next_step();
    if (update.empty()) return copies;
    for (const data::Batch& batch : update) copies.push_back(copy_of(batch));
  }
}

inline std::vector<std::vector<Copy>> run(const data::ImageSet& set, const data::LoaderOptions& options,
                                          int epochs) {
  data::DataLoader loader(set, options);
  std::vector<std::vector<Copy>> result;
  for (int epoch = 0; epoch < epochs; ++epoch) result.push_back(rest_of_epoch(loader));
  return result;
}

}  // namespace convoy::testing
