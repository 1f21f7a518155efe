#include "convoy/datasets/transforms/transforms.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/kernels/base/error.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;

const data::ChannelStatistics kStatistics{.mean = {0.5f, 0.25f, 0.125f}, .std = {0.25f, 0.5f, 0.2f}};

data::TransformSpec make(const char* text, bool natural = true) {
  return data::make_transform(text, kStatistics, {.natural_images = natural});
}

std::string refusal(const char* text) {
  try {
    make(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(Transforms, AutoDependsOnTheKindOfImages) {
  EXPECT_EQ(make("auto", true).augment.crop_padding, 4);
  EXPECT_TRUE(make("auto", true).augment.flip);
  EXPECT_EQ(make("auto", false).augment.crop_padding, 0);
  EXPECT_FALSE(make("auto", false).augment.flip);
}

TEST(Transforms, ReadsLists) {
  const kernels::AugmentOptions all = make(" crop=2, reflect ,flip,cutout = 16 ").augment;
  EXPECT_EQ(all.crop_padding, 2);
  EXPECT_TRUE(all.reflect);
  EXPECT_TRUE(all.flip);
  EXPECT_EQ(all.cutout, 16);
  EXPECT_EQ(all.jitter, 0);
  EXPECT_EQ(make("jitter=25").augment.jitter, 25);
  EXPECT_EQ(make("saturation=30,hue=7").augment.saturation, 30);
  EXPECT_EQ(make("saturation=30,hue=7").augment.hue, 7);
  EXPECT_EQ(make("saturation,hue").augment.saturation, 10);
  EXPECT_EQ(make("saturation,hue").augment.hue, 5);
  const kernels::AugmentOptions defaults = make("cutout,crop,jitter").augment;
  EXPECT_EQ(defaults.jitter, 10);
  EXPECT_EQ(defaults.crop_padding, 4);
  EXPECT_EQ(defaults.cutout, 8);
  EXPECT_EQ(defaults.min_area, 0);
  EXPECT_EQ(make("resized-crop").augment.min_area, 8);
  EXPECT_EQ(make("flip,resized-crop=30").augment.min_area, 30);
  EXPECT_FALSE(defaults.reflect);
  EXPECT_FALSE(defaults.flip);
  EXPECT_EQ(make("none").augment.crop_padding, 0);
  EXPECT_FALSE(all.alternate_flips);
  EXPECT_TRUE(make("alternating-flip").augment.flip);
  EXPECT_TRUE(make("alternating-flip").augment.alternate_flips);
}

TEST(Transforms, RefusesUnknownWords) {
  for (const char* word : {"rotate", "", "none,flip", "auto,flip", "flip,", "Crop", "flip=2", "reflect=1",
                           "rotate=x", "alternating-flip=2"}) {
    EXPECT_THAT(refusal(word), HasSubstr("AugmentOptions: ")) << word;
    EXPECT_THAT(
        refusal(word),
        HasSubstr("resized-crop[=PERCENT], flip, alternating-flip, cutout[=PIXELS], jitter[=PERCENT], "
                  "saturation[=PERCENT] and hue[=PERCENT]"))
        << word;
  }
  EXPECT_THAT(refusal("flip,rotate"), HasSubstr("found 'rotate'"));
}

TEST(Transforms, RefusesNumbersOutOfRange) {
  for (const char* word :
       {"crop=", "crop=0", "crop=-1", "crop=four", "crop=4px", "crop=1025", "cutout=99999999999"}) {
    EXPECT_THAT(refusal(word), HasSubstr("from 1 to 1024")) << word;
    EXPECT_THAT(refusal(word), HasSubstr(word)) << word;
  }
  for (const char* word : {"jitter=0", "jitter=101", "jitter=x"})
    EXPECT_THAT(refusal(word), HasSubstr("percentage from 1 to 100")) << word;
  EXPECT_THAT(refusal("saturation=101"), HasSubstr("percentage from 1 to 100"));
  EXPECT_THAT(refusal("hue=51"), HasSubstr("percentage of the color circle from 1 to 50"));
}

TEST(Transforms, RefusesContradictions) {
  EXPECT_THAT(refusal("crop=2,crop=4"), HasSubstr("twice"));
  EXPECT_THAT(refusal("flip,flip"), HasSubstr("twice"));
  EXPECT_THAT(refusal("flip,alternating-flip"), HasSubstr("two kinds of flips"));
  EXPECT_THAT(refusal("reflect,flip"), HasSubstr("'reflect' without 'crop'"));
  EXPECT_THAT(refusal("crop,resized-crop"), HasSubstr("expected one of them"));
  EXPECT_THAT(refusal("original-crop,resized-crop"), HasSubstr("expected one of them"));
  EXPECT_THAT(refusal("rotation=181"), HasSubstr("expected a number of degrees from 1 to 180"));
  EXPECT_THAT(refusal("resized-crop=101"), HasSubstr("expected a percentage from 1 to 100"));
}

TEST(Transforms, NormalizesWithTheStatistics) {
  const kernels::AugmentOptions augment = make("none").augment;
  EXPECT_EQ(augment.mean, (std::array<float, 4>{0.5f, 0.25f, 0.125f, 0}));
  EXPECT_EQ(augment.inverse_std, (std::array<float, 4>{4, 2, 5, 1}));  // the fourth: there is none
}

TEST(Transforms, AConstantChannelIsNotAmplified) {
  const kernels::AugmentOptions augment = data::make_transform("none", {.mean = {0.5f}, .std = {0}}).augment;
  EXPECT_FLOAT_EQ(augment.inverse_std[0], 255);
}

TEST(Transforms, OfOriginalImagesAreParsed) {
  const data::TransformSpec spec = make("original-crop,rotation=20,flip");
  EXPECT_EQ(spec.original.min_area, 8);
  EXPECT_EQ(spec.original.rotation, 20);
  EXPECT_THAT(spec.describe(),
              HasSubstr("crop of the original image from 8%, rotation within 20 degrees, flip, "));
  EXPECT_FALSE(spec.evaluation().original.enabled());
  EXPECT_EQ(make("rotation").original.rotation, 15);
}

TEST(Transforms, EvaluationKeepsOnlyTheNormalization) {
  const data::TransformSpec training = make("crop=2,reflect,flip,cutout=16,jitter,saturation,hue");
  const kernels::AugmentOptions evaluation = training.evaluation().augment;
  EXPECT_EQ(evaluation.crop_padding, 0);
  EXPECT_FALSE(evaluation.reflect);
  EXPECT_FALSE(evaluation.flip);
  EXPECT_EQ(evaluation.cutout, 0);
  EXPECT_EQ(evaluation.jitter + evaluation.saturation + evaluation.hue, 0);
  EXPECT_EQ(make("resized-crop").evaluation().augment.min_area, 0);
  EXPECT_THAT(make("resized-crop,flip").describe(), HasSubstr("resized crop from 8%, flip, "));
  EXPECT_EQ(evaluation.mean, training.augment.mean);
  EXPECT_EQ(evaluation.inverse_std, training.augment.inverse_std);
}

TEST(Transforms, SixViewsOfAnImageHaveWeightsWithTheSumOne) {
  const data::TransformSpec training = make("crop=2,flip,cutout=16");
  double sum = 0;
  std::vector<std::pair<int, bool>> views;  // shift, mirrored
  for (const data::TransformSpec::View& view : training.views()) {
    const kernels::AugmentOptions& augment = view.transform.augment;
    EXPECT_EQ(augment.crop_padding + augment.cutout, 0);
    EXPECT_FALSE(augment.flip);
    EXPECT_TRUE(augment.reflect);
    EXPECT_EQ(augment.mean, training.augment.mean);
    EXPECT_EQ(augment.down, augment.right);
    EXPECT_EQ(view.weight, augment.down == 0 ? 0.25 : 0.125);
    views.emplace_back(augment.down, augment.mirror);
    sum += view.weight;
  }
  EXPECT_THAT(views,
              ::testing::UnorderedElementsAre(std::pair(0, false), std::pair(0, true), std::pair(1, false),
                                              std::pair(1, true), std::pair(-1, false), std::pair(-1, true)));
  EXPECT_EQ(sum, 1);
}

TEST(Transforms, DescribesItself) {
  const std::string normalise = "normalise (mean 0.500 0.250 0.125, std 0.250 0.500 0.200)";
  EXPECT_EQ(make("crop=2,reflect,flip,cutout=16,jitter=5,saturation=6,hue=7").describe(),
            "crop 2 (reflected), flip, cutout 16, brightness and contrast within 5%, saturation within 6%, "
            "hue within 7% of the circle, " +
                normalise);
  EXPECT_EQ(make("alternating-flip").describe(), "alternating flip, " + normalise);
  EXPECT_EQ(make("none").describe(), normalise);
  EXPECT_EQ(data::TransformSpec{}.describe(), "not normalised");
}

TEST(Transforms, RefusesColorsOfGrayImages) {
  EXPECT_NO_THROW(make("saturation,hue").check_image_shape(8, 9, 3));
  for (const char* word : {"saturation", "hue"})
    for (const int channels : {1, 4}) try {
        make(word).check_image_shape(8, 9, channels);
        ADD_FAILURE() << word << " with " << channels << " channels";
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("images of {} channels, expected 3", channels)));
      }
}

TEST(Transforms, RefusesImagesThatAreTooSmall) {
  EXPECT_NO_THROW(make("crop=7,cutout=8").check_image_shape(8, 9, 3));
  EXPECT_THROW(make("crop=8").check_image_shape(8, 9, 3), UsageError);
  EXPECT_THROW(make("cutout=9").check_image_shape(9, 8, 3), UsageError);
}

}  // namespace
}  // namespace convoy
