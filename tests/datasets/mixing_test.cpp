// Mixup and CutMix: the distribution of the weights, the boxes, and the mixed batches of a loader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>

#include "convoy/datasets/transforms/transforms.h"
#include "tests/datasets/loader_fixture.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

constexpr Random kRandom{.seed = 5, .purpose = RandomPurpose::augmentation, .stream = 2};

// Beta(a, a) has the mean 1/2, the variance 1 / (4 (2a + 1)), and the kurtosis 3 - 6 / (2a + 3).
TEST(DrawBeta, HasTheMomentsOfTheDistribution) {
  constexpr int kDraws = 4000;
  for (const double alpha : {0.1, 0.2, 0.4, 1.0, 1.5, 8.0}) {
    double sum = 0, squares = 0, least = 1, greatest = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double x = data::draw_beta(alpha, kRandom, i, 7);
      sum += x;
      squares += (x - 0.5) * (x - 0.5);
      least = std::min(least, x);
      greatest = std::max(greatest, x);
    }
    const double variance = 1 / (4 * (2 * alpha + 1)), kurtosis = 3 - 6 / (2 * alpha + 3);
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 5 * variance * std::sqrt((kurtosis - 1) / kDraws)) << alpha;
    EXPECT_GE(least, 0) << alpha;
    EXPECT_LE(greatest, 1) << alpha;
  }
}

TEST(DrawBeta, IsAWeightForExtremeParameters) {
  for (const double alpha : {1e-12, 1e-3, 1e3})
    for (std::uint64_t i = 0; i < 100; ++i) {
      const double x = data::draw_beta(alpha, kRandom, i, 0);
      EXPECT_TRUE(0 <= x && x <= 1) << x;
    }
}

TEST(ChooseMixing, MixupCoversTheImageAndCutMixABox) {
  int cuts = 0, empty = 0;
  for (std::int64_t step = 0; step < 400; ++step) {
    const data::Mixing mixing = data::choose_mixing({.mixup = 0.5, .cutmix = 1}, 3, 1, step, 32, 20);
    if (mixing.divisor == 1) {
      ++cuts;
      const auto area =
          static_cast<double>((mixing.bottom - mixing.top) * (mixing.right - mixing.left)) / (32 * 20);
      EXPECT_NEAR(mixing.weight, 1 - area, 0x1p-17);
      empty += area == 0 ? 1 : 0;
      EXPECT_TRUE(0 <= mixing.top && mixing.bottom <= 32 && 0 <= mixing.left && mixing.right <= 20);
    } else {
      EXPECT_EQ(mixing.bottom - mixing.top, 32);
      EXPECT_EQ(mixing.right - mixing.left, 20);
      EXPECT_EQ(mixing.divisor, 1 / (1 - mixing.weight));
    }
  }
  EXPECT_NEAR(cuts, 200, 50);  // five standard deviations
  EXPECT_LT(empty, 40);
  const auto divisor = [](const data::MixingOptions& options, std::int64_t step) {
    return data::choose_mixing(options, 3, 1, step, 32, 20).divisor;
  };
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(divisor({.cutmix = 1}, step), 1);
    EXPECT_NE(divisor({.mixup = 1}, step), 1);
  }
}

/// Returns an epoch of the loader, with each sample mixed by hand.
std::vector<Copy> mixed_by_hand(const data::ImageSet& set, data::LoaderOptions options) {
  const data::MixingOptions mixing = std::exchange(options.transform.mixing, {});
  std::vector<Copy> batches = run(set, options, 1)[0];
  for (Copy& batch : batches) {
    const Copy plain = batch;
    const data::Mixing mix = data::choose_mixing(mixing, options.seed, 0, batch.step, kHeight, kWidth);
    const std::size_t count = plain.ids.size();
    batch.weight = mix.weight;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t partner = (i + count - 1) % count;
      batch.partner_labels.push_back(plain.labels[partner]);
      for (std::int64_t e = 0; e < kPixels; ++e) {
        const std::int64_t y = e / (kWidth * kChannels), x = e / kChannels % kWidth;
        if (y < mix.top || y >= mix.bottom || x < mix.left || x >= mix.right) continue;
        const auto own = static_cast<std::size_t>(e) + i * kPixels;
        const float other = plain.images[static_cast<std::size_t>(e) + partner * kPixels];
        const auto weight = static_cast<float>(mix.divisor == 1 ? 0 : mix.weight);
        batch.images[own] = weight * plain.images[own] + (1 - weight) * other;
      }
    }
  }
  return batches;
}

TEST(MixedBatches, AreMeansOfASampleAndTheOneBefore) {
  const data::ImageSet set = make_set(35);  // the last step has 3 samples
  for (const data::MixingOptions mixing :
       {data::MixingOptions{.mixup = 0.8}, data::MixingOptions{.cutmix = 1}}) {
    data::LoaderOptions options{.global_batch = 8, .seed = 4, .transform = random_transform()};
    options.transform.mixing = mixing;
    const std::vector<Copy> expected = mixed_by_hand(set, options), found = run(set, options, 1)[0];
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t b = 0; b < found.size(); ++b) {
      EXPECT_EQ(found[b].ids, expected[b].ids);
      EXPECT_EQ(found[b].partner_labels, expected[b].partner_labels);
      EXPECT_EQ(found[b].weight, expected[b].weight);
      for (std::size_t i = 0; i < found[b].images.size(); ++i)
        ASSERT_NEAR(found[b].images[i], expected[b].images[i], 1e-5) << "rounding of values of at most 6";
    }
  }
}

TEST(MixedBatches, DoNotDependOnRanksMicroBatchesAndWorkers) {
  const data::ImageSet set = make_set(35);
  data::LoaderOptions options{.global_batch = 8, .seed = 4, .transform = random_transform()};
  options.transform.mixing = {.mixup = 0.5, .cutmix = 1};
  const std::vector<Copy> whole = run(set, options, 1)[0];
  options.workers = 0;
  options.micro_batch = 2;
  options.world_size = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    const std::vector<Copy> parts = run(set, options, 1)[0];
    for (const Copy& part : parts) {
      const Copy& all = whole[static_cast<std::size_t>(part.step)];
      EXPECT_EQ(part.weight, part.ids.empty() ? part.weight : all.weight);
      for (std::size_t i = 0; i < part.ids.size(); ++i) {
        const auto at = std::find(all.ids.begin(), all.ids.end(), part.ids[i]) - all.ids.begin();
        EXPECT_EQ(part.partner_labels[i], all.partner_labels[static_cast<std::size_t>(at)]);
        for (std::int64_t e = 0; e < kPixels; ++e)
          ASSERT_EQ(part.images[i * kPixels + static_cast<std::size_t>(e)],
                    all.images[static_cast<std::size_t>(at * kPixels + e)]);
      }
    }
  }
}

}  // namespace
}  // namespace convoy::testing
