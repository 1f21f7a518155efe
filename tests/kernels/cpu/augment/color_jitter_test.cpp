// Random saturation and hue: the arithmetic is compared with torchvision's (tests/reference/color_jitter.py), and
// augment() with the arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "convoy/kernels/augment.h"
#include "convoy/kernels/shared/augment_choices.h"
#include "tests/kernels/array.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using kernels::Color;
using kernels::ColorChoices;

constexpr int kPixels = 400;

std::vector<Color> pixels_of_the_script() {
  const auto labels = formula_labels("color_jitter", kPixels * 3, 256).to_vector<std::int32_t>();
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(labels[i]); };
  std::vector<Color> pixels;
  for (std::size_t i = 0; i < labels.size(); i += 3) pixels.push_back({byte(i), byte(i + 1), byte(i + 2)});
  return pixels;
}

/// Expects `change` of each pixel to be the stored numbers, rounded to bytes.
template <class F>
void expect_stored(const char* name, double tolerance, F&& change) {
  SCOPED_TRACE(name);
  const auto stored = Reference("color_jitter.safetensors").at(name).to_vector<double>();
  const auto pixels = pixels_of_the_script();
  int changed = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const Color color = change(pixels[i]);
    for (int c = 0; c < 3; ++c) {
      ASSERT_NEAR(color.channel(c), stored[3 * i + static_cast<std::size_t>(c)], tolerance)
          << "channel " << c << " of pixel " << i;
      if (color.channel(c) != pixels[i].channel(c)) ++changed;
    }
  }
  EXPECT_GT(changed, kPixels);
}

// torchvision rounds the weights of gray to 4 digits, which changes 255 units by at most 0.03 and, by the factor, half of
// that to as much. Half a unit is the rounding.
TEST(ColorJitter, SaturationIsThatOfTorchvision) {
  for (const auto& [name, factor] : {std::pair{"saturation/0.0", 0.0},
                                     {"saturation/0.5", 0.5},
                                     {"saturation/1.25", 1.25},
                                     {"saturation/2.0", 2.0}})
    expect_stored(name, 0.53, [&](const Color& color) {
      return kernels::saturate(color, static_cast<std::int32_t>(std::lround(factor * ColorChoices::kOne)));
    });
}

// A part of the circle has an error of 2^-17, six sixths of at most 255 units each one of 0.012.
TEST(ColorJitter, HueIsThatOfTorchvision) {
  for (const auto& [name, turn] :
       {std::pair{"hue/-0.5", -0.5}, {"hue/-0.2", -0.2}, {"hue/0.04", 0.04}, {"hue/0.31", 0.31}})
    expect_stored(name, 0.512, [&](const Color& color) {
      const auto whole = static_cast<std::int32_t>(std::lround(turn * ColorChoices::kOne));
      return kernels::rotate_hue(color, whole & (ColorChoices::kOne - 1));
    });
}

TEST(ColorJitter, GrayAndATurnOfNothingChangeNothing) {
  for (int level = 0; level < 256; ++level) {
    const auto byte = static_cast<std::uint8_t>(level);
    for (const std::int32_t turn : {0, 12345, 65535}) {
      const Color gray = kernels::change_color({byte, byte, byte}, {.saturation = 100000, .turn = turn});
      for (int c = 0; c < 3; ++c) EXPECT_EQ(gray.channel(c), byte);
    }
  }
  for (const Color& color : pixels_of_the_script()) {
    const Color same = kernels::change_color(color, {});
    for (int c = 0; c < 3; ++c) EXPECT_EQ(same.channel(c), color.channel(c));
  }
}

// Factors and turns are uniform in the range of the options, and the normalization follows.
TEST(ColorJitter, IsPartOfAugment) {
  constexpr Random kRandom{.seed = 3, .purpose = RandomPurpose::augmentation, .stream = 1};
  constexpr std::size_t kBatch = 4000;
  const auto pixels = pixels_of_the_script();
  Array<std::uint8_t> images({kPixels, 1, 1, 3});
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = pixels[i / 3].channel(static_cast<int>(i % 3));
  Array<std::int32_t> rows({kBatch}), ids({kBatch});
  for (std::size_t i = 0; i < kBatch; ++i) {
    rows[i] = static_cast<std::int32_t>(i % kPixels);
    ids[i] = static_cast<std::int32_t>(1000003 * i);
  }
  const kernels::AugmentOptions options{
      .saturation = 40, .hue = 25, .mean = {0.5f, 0.4f, 0.3f}, .inverse_std = {2, 3, 4}};
  Array<double> out({kBatch, 1, 1, 3});
  CpuStream stream({.threads = 2});
  kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, out.view());
  double least = 1, most = 1, left = 0, right = 0, sum = 0;
  for (std::size_t n = 0; n < kBatch; ++n) {
    const auto words = kRandom.words(static_cast<std::uint64_t>(ids[n]), 4);
    const auto uniform = [](std::uint32_t word) {  // in [-1, 1), in steps of 2^-15
      return std::floor(static_cast<std::int32_t>(word) / 65536.0) / 32768;
    };
    const double factor = 1 + 0.4 * uniform(words[2]), turn = 0.25 * uniform(words[3]);
    const ColorChoices chosen = kernels::choose_colors(options, kRandom, static_cast<std::uint64_t>(ids[n]));
    ASSERT_NEAR(chosen.saturation / 65536.0, factor, 1 / 65536.0);
    ASSERT_NEAR(std::remainder(chosen.turn / 65536.0 - turn, 1), 0, 1 / 65536.0);
    least = std::min(least, factor);
    most = std::max(most, factor);
    left = std::min(left, turn);
    right = std::max(right, turn);
    sum += factor + turn;
    const Color color = kernels::change_color(pixels[n % kPixels], chosen);
    for (std::size_t c = 0; c < 3; ++c)
      ASSERT_EQ(out[3 * n + c], kernels::normalize_pixel<double>(color.channel(static_cast<int>(c)),
                                                                 options.mean[c], options.inverse_std[c]));
  }
  EXPECT_LT(least, 0.61);
  EXPECT_GT(most, 1.39);
  EXPECT_LT(left, -0.245);
  EXPECT_GT(right, 0.245);
  EXPECT_NEAR(sum / kBatch, 1, 0.0215) << "5 standard errors";
}

}  // namespace
}  // namespace convoy::testing
