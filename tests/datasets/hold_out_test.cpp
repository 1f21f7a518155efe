// Tests of the division of training images into those to train on and those held out for validation.
#include "convoy/datasets/loader/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns a set of images [1, 2, 1] whose first pixel is their number and whose second is their label.
data::ImageSet numbered(const std::vector<std::int32_t>& labels) {
  const auto count = std::ssize(labels);
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    pixels.push_back(static_cast<std::uint8_t>(i));
    pixels.push_back(static_cast<std::uint8_t>(labels[i]));
  }
  return {Tensor::from(pixels, {count, 1, 2, 1}, Device::cpu()),
          Tensor::from(labels, {count}, Device::cpu())};
}

/// Returns the numbers of the images, and checks that each has its label.
std::vector<int> numbers_of(const data::ImageSet& set) {
  const auto pixels = set.images.to_vector<std::uint8_t>();
  const auto labels = set.labels.to_vector<std::int32_t>();
  std::vector<int> numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    numbers.push_back(pixels[2 * i]);
    EXPECT_EQ(pixels[2 * i + 1], labels[i]);
  }
  return numbers;
}

/// Returns the number of images by class.
std::vector<int> counts_of(const data::ImageSet& set, std::size_t classes) {
  std::vector<int> counts(classes);
  for (const std::int32_t label : set.labels.to_vector<std::int32_t>())
    ++counts[static_cast<std::size_t>(label)];
  return counts;
}

std::vector<std::int32_t> labels_of(const std::vector<int>& counts) {
  std::vector<std::int32_t> labels;
  for (std::size_t label = 0; label < counts.size(); ++label)
    labels.insert(labels.end(), static_cast<std::size_t>(counts[label]), static_cast<std::int32_t>(label));
  return labels;
}

TEST(HoldOut, DividesEachImageToOnePartInOrder) {
  const data::ImageSet set = numbered(labels_of({40, 60}));
  const auto [kept, held_out] = data::hold_out(set, 30, 5);
  const std::vector<int> first = numbers_of(kept), second = numbers_of(held_out);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_TRUE(std::is_sorted(second.begin(), second.end()));
  std::set<int> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(second.size(), 30u);
}

TEST(HoldOut, KeepsTheFractionsOfTheClasses) {
  const auto counts = [](const std::vector<int>& images, std::int64_t count) {
    return counts_of(data::hold_out(numbered(labels_of(images)), count, 1).second, images.size());
  };
  EXPECT_THAT(counts({50, 30, 20}, 10), ElementsAre(5, 3, 2));
  // 2.5, 1.5 and 1 images: the largest remainders are rounded up, of equal ones the first.
  EXPECT_THAT(counts({50, 30, 20}, 5), ElementsAre(3, 1, 1));
  // 0.9 of a single image would leave none to train on.
  EXPECT_THAT(counts({1, 1, 18}, 17), ElementsAre(0, 0, 17));
}

TEST(HoldOut, DependsOnTheSeedOnly) {
  const data::ImageSet set = numbered(labels_of({50, 50}));
  const auto drawn = [&](std::uint64_t seed) { return numbers_of(data::hold_out(set, 20, seed).second); };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(HoldOut, RefusesCountsThatLeaveAClassWithoutImages) {
  const data::ImageSet set = numbered(labels_of({5, 5}));
  EXPECT_EQ(data::hold_out(set, 8, 1).first.size(), 2);
  for (const std::int64_t count : {-1, 0, 9, 10, 11})
    EXPECT_THAT(message_of<UsageError>([&] { data::hold_out(set, count, 1); }),
                HasSubstr("expected 1 to 8, which leaves one per class"))
        << count;
}

}  // namespace
}  // namespace convoy::testing
