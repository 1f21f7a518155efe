// Tests of the generated data set and of channel statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "convoy/datasets/formats/readers.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

std::vector<std::uint8_t> pixels(const data::ImageSet& set) { return set.images.to_vector<std::uint8_t>(); }

TEST(Shapes, HasTenBalancedClasses) {
  const data::DataSet data = data::generate_shapes({.train = 200, .test = 50});
  EXPECT_EQ(data.classes.size(), 10u);
  EXPECT_EQ(data.train.images.shape(), (Shape{200, 32, 32, 3}));
  EXPECT_EQ(data.test.images.shape(), (Shape{50, 32, 32, 3}));
  const std::vector<std::int32_t> labels = data.train.labels.to_vector<std::int32_t>();
  for (std::int32_t label = 0; label < 10; ++label)
    EXPECT_EQ(std::count(labels.begin(), labels.end(), label), 20);
}

TEST(Shapes, EachImageDependsOnlyOnSeedAndIndex) {
  // Other counts are divided differently among the threads.
  const std::vector<std::uint8_t> few =
      pixels(data::generate_shapes({.train = 130, .test = 1, .seed = 3}).train);
  const std::vector<std::uint8_t> many =
      pixels(data::generate_shapes({.train = 500, .test = 1, .seed = 3}).train);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(few, pixels(data::generate_shapes({.train = 130, .test = 1, .seed = 4}).train));
}

TEST(Shapes, TrainAndTestAreDisjoint) {
  const data::DataSet data = data::generate_shapes({.train = 100, .test = 100});
  const std::vector<std::uint8_t> train = pixels(data.train), test = pixels(data.test);
  constexpr std::ptrdiff_t kImage = 32 * 32 * 3;
  for (std::ptrdiff_t i = 0; i < 100; ++i)
    for (std::ptrdiff_t j = 0; j < 100; ++j)
      EXPECT_FALSE(std::equal(train.begin() + i * kImage, train.begin() + (i + 1) * kImage,
                              test.begin() + j * kImage));
}

/// Returns the fraction of test images whose nearest mean training image is that of their own class.
double nearest_mean_accuracy(const data::DataSet& data) {
  const std::vector<std::uint8_t> train = pixels(data.train), test = pixels(data.test);
  const std::size_t image = train.size() / static_cast<std::size_t>(data.train.size());
  std::vector<std::vector<double>> means(10, std::vector<double>(image, 0));
  for (std::size_t i = 0; i < train.size(); ++i) means[i / image % 10][i % image] += train[i];
  for (std::vector<double>& mean : means)
    for (double& value : mean) value /= static_cast<double>(data.train.size()) / 10;
  int right = 0;
  for (std::size_t i = 0; i < test.size() / image; ++i) {
    std::size_t best = 0;
    double minimum = HUGE_VAL;
    for (std::size_t label = 0; label < 10; ++label) {
      double distance = 0;
      for (std::size_t at = 0; at < image; ++at) {
        const double difference = test[i * image + at] - means[label][at];
        distance += difference * difference;
      }
      if (distance < minimum) {
        minimum = distance;
        best = label;
      }
    }
    if (best == i % 10) ++right;
  }
  return right / static_cast<double>(data.test.size());
}

TEST(Shapes, NearestMeanImageIsAWeakClassifier) {
  // Chance is 10 %, with a standard deviation of 1.5 % over 400 images. The result would be far higher if
  // color or position predicted the class.
  EXPECT_LT(nearest_mean_accuracy(data::generate_shapes({.train = 2000, .test = 400})), 0.25);
}

TEST(Shapes, DrawsAtOtherSizes) {
  EXPECT_EQ(data::generate_shapes({.train = 10, .test = 10, .size = 9}).image_shape(), (Shape{9, 9, 3}));
  EXPECT_EQ(data::generate_shapes({.train = 2, .test = 1, .size = 128}).image_shape(), (Shape{128, 128, 3}));
}

TEST(Shapes, RefusesInvalidSizes) {
  EXPECT_THROW(data::generate_shapes({.size = 4}), UsageError);
  EXPECT_THROW(data::generate_shapes({.size = 5000}), UsageError);
  EXPECT_THROW(data::generate_shapes({.train = 0}), UsageError);
  EXPECT_THROW(data::generate_shapes({.test = -1}), UsageError);
}

data::ImageSet set_of(const std::vector<std::uint8_t>& values, const Shape& shape) {
  return {Tensor::from(values, shape, Device::cpu()), Tensor::zeros({shape[0]}, DType::i32, Device::cpu())};
}

TEST(ChannelStatistics, AreThoseOfThePixels) {
  // Two images of 1 x 2 pixels of 2 channels: 0, 51, 102, 255 and 255 throughout.
  const data::ChannelStatistics statistics =
      data::channel_statistics(set_of({0, 255, 51, 255, 102, 255, 255, 255}, {2, 1, 2, 2}));
  // In units of 255: 0, 0.2, 0.4, 1: mean 0.4, variance (0.16 + 0.04 + 0 + 0.36) / 4 = 0.14.
  constexpr float kRounding = 1e-7f;  // of a float below 1
  EXPECT_NEAR(statistics.mean[0], 0.4f, kRounding);
  EXPECT_NEAR(statistics.std[0], std::sqrt(0.14f), kRounding);
  EXPECT_EQ(statistics.mean[1], 1.0f);
  EXPECT_EQ(statistics.std[1], 0.0f);
  EXPECT_EQ(statistics.mean[2], 0.0f);
}

// Uses more values than are summed in 32 bits at once, and some after the last complete vector.
TEST(ChannelStatistics, MatchTheReferenceLoopForAnyNumberOfChannels) {
  constexpr std::int64_t kPixels = 1050001;
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const Tensor images = Tensor::empty({1, 1, kPixels, channels}, DType::u8, Device::cpu());
    auto* values = images.view().as<std::uint8_t>();
    std::array<std::uint64_t, 4> sum{}, sum_of_squares{};
    for (std::int64_t i = 0; i < images.numel(); ++i) {
      const std::int64_t c = i % channels;
      values[i] = static_cast<std::uint8_t>(255 - (i / 7 + i * c) % 31);
      sum[static_cast<std::size_t>(c)] += values[i];
      sum_of_squares[static_cast<std::size_t>(c)] += std::uint64_t{values[i]} * values[i];
    }
    const data::ChannelStatistics found =
        data::channel_statistics({images, Tensor::from(std::vector<std::int32_t>{0}, {1}, Device::cpu())});
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const double mean = static_cast<double>(sum[c]) / kPixels;
      const double variance = static_cast<double>(sum_of_squares[c]) / kPixels - mean * mean;
      EXPECT_FLOAT_EQ(found.mean[c], static_cast<float>(mean / 255)) << channels << " channels";
      EXPECT_NEAR(found.std[c], std::sqrt(variance) / 255, 1e-7) << channels << " channels";
    }
  }
}

TEST(ChannelStatistics, RefuseAnEmptySet) { EXPECT_THROW(data::channel_statistics({}), UsageError); }

}  // namespace
}  // namespace convoy
