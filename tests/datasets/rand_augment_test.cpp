// RandAugment: each operation is compared with torchvision (tests/reference/rand_augment.py).
#include "convoy/datasets/transforms/transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/datasets/loader_fixture.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  return {values.begin(), values.end()};
}

TEST(RandAugment, OperationsAreThoseOfTorchvision) {
  constexpr int kRows = 20, kColumns = 17;  // of the images of the script
  const Reference expected("rand_augment.safetensors");
  int changed = 0;
  for (const int channels : {1, 3}) {
    std::vector<std::uint8_t> original;
    const Tensor labels =
        formula_labels("rand_augment/" + std::to_string(channels), kRows * kColumns * channels, 200);
    for (const std::int32_t value : labels.to_vector<std::int32_t>())
      original.push_back(static_cast<std::uint8_t>(value + 20));
    for (std::size_t k = 0; k < data::kImageOperations.size(); ++k)
      for (const int magnitude : {9, 23})
        for (const bool negative : {false, true}) {
          const auto operation = static_cast<data::ImageOperation>(k);
          const bool is_signed =
              data::ImageOperation::shear_x <= operation && operation <= data::ImageOperation::sharpness;
          const std::string name = fmt::format("{}/{}/{}", data::kImageOperations[k],
                                               negative && is_signed ? -magnitude : magnitude, channels);
          std::vector<std::uint8_t> image = original;
          data::apply_operation(operation, magnitude, negative,
                                {.pixels = image, .height = kRows, .width = kColumns, .channels = channels});
          EXPECT_EQ(image, bytes_of(expected.at(name))) << name;
          changed += image != original ? 1 : 0;
        }
  }
  EXPECT_EQ(changed, 4 * 2 * 14 - 2 * 4 - 4) << "all but Identity, and Color of one channel";
}

TEST(RandAugment, LeavesImagesOfOneColorInTheirRange) {
  for (std::size_t k = 0; k < data::kImageOperations.size(); ++k)
    for (const int side : {1, 2, 3}) {
      std::vector<std::uint8_t> image(static_cast<std::size_t>(side * side * 3), std::uint8_t{77});
      data::apply_operation(static_cast<data::ImageOperation>(k), 30, false,
                            {.pixels = image, .height = side, .width = side, .channels = 3});
      const auto operation = static_cast<data::ImageOperation>(k);
      if (operation == data::ImageOperation::auto_contrast || operation == data::ImageOperation::equalize ||
          operation == data::ImageOperation::sharpness) {
        EXPECT_TRUE(std::ranges::all_of(image, [](int pixel) { return 76 <= pixel && pixel <= 77; }))
            << data::kImageOperations[k];
      }
    }
}

// The numbers of times that operations are drawn; a chain of two is that of its parts.
TEST(RandAugment, DrawsOperationsByTheSample) {
  const Random random{.seed = 4, .purpose = RandomPurpose::augmentation, .stream = 3};
  std::vector<std::uint8_t> original(25 * 25 * 3);
  for (std::size_t i = 0; i < original.size(); ++i)
    original[i] = static_cast<std::uint8_t>(i * 37 + i / 75 * 11);
  std::map<std::uint32_t, int> drawn;
  for (std::uint64_t id = 0; id < 300; ++id) {
    std::vector<std::uint8_t> expected = original, found = original;
    for (const std::uint32_t k : {0U, 1U}) {
      const auto words = random.words(id, 32 + k);
      const std::uint32_t operation = to_below(words[0], 14);
      ++drawn[operation];
      data::apply_operation(static_cast<data::ImageOperation>(operation), 12, words[1] >= 0x80000000U,
                            {.pixels = expected, .height = 25, .width = 25, .channels = 3});
    }
    data::rand_augment({.operations = 2, .magnitude = 12}, random, id,
                       {.pixels = found, .height = 25, .width = 25, .channels = 3});
    ASSERT_EQ(found, expected) << id;
  }
  EXPECT_EQ(drawn.size(), 14U);
  for (const auto& [operation, count] : drawn) EXPECT_NEAR(count, 43, 32) << "five standard deviations";
}

TEST(RandAugment, ReadsTwoNumbers) {
  EXPECT_FALSE(data::parse_rand_augment("none").enabled());
  const data::RandAugmentOptions options = data::parse_rand_augment("3,14");
  EXPECT_EQ(options.operations, 3);
  EXPECT_EQ(options.magnitude, 14);
  for (const char* text : {"", "2", "2,", ",9", "0,9", "17,9", "2,31", "2,-1", "2,9,1", "2, 9", "two,9"})
    EXPECT_THAT(message_of<UsageError>([&] { data::parse_rand_augment(text); }), HasSubstr("such as 2,9"))
        << text;
}

/// Batches of a loader with RandAugment, and with transforms that follow it.
TEST(RandAugment, IsTheFirstTransformOfABatch) {
  const data::ImageSet set = make_set(23);
  data::LoaderOptions options{.global_batch = 8, .seed = 4};
  options.transform.rand_augment = {.operations = 2, .magnitude = 20};
  const std::vector<Copy> found = run(set, options, 1)[0];
  const Random random{4, RandomPurpose::augmentation, 0};
  const auto* const stored = set.images.view().as<const std::uint8_t>();
  for (const Copy& batch : found)
    for (std::size_t i = 0; i < batch.ids.size(); ++i) {
      std::vector<std::uint8_t> image(stored + batch.ids[i] * kPixels, stored + (batch.ids[i] + 1) * kPixels);
      data::rand_augment(options.transform.rand_augment, random, static_cast<std::uint64_t>(batch.ids[i]),
                         {.pixels = image, .height = kHeight, .width = kWidth, .channels = kChannels});
      for (std::size_t e = 0; e < image.size(); ++e)
        ASSERT_EQ(batch.images[i * kPixels + e], static_cast<float>(image[e]) / 255);
    }
  options.transform = random_transform();
  options.transform.rand_augment = {.operations = 2, .magnitude = 20};
  options.transform.mixing = {.mixup = 1};
  const auto whole = run(set, options, 2);
  options.workers = 0;
  EXPECT_EQ(run(set, options, 2), whole);
}

}  // namespace
}  // namespace convoy::testing
