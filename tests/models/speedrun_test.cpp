// The speedrun networks: structure, initial values, and whitening.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/models.h"
#include "convoy/models/whitening.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::message_of;

// Returns images whose neighbors and channels depend on each other, as those of photographs.
Tensor smooth_images(std::int64_t count, std::int64_t side, std::int64_t channels) {
  const Random random{.seed = 7, .purpose = RandomPurpose::test};
  std::vector<float> pixels;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto words = random.words(static_cast<std::uint64_t>(i));
    for (std::int64_t y = 0; y < side; ++y)
      for (std::int64_t x = 0; x < side; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          const double wave = std::sin(0.3 * static_cast<double>(y) + 5 * to_uniform(words[0])) +
                              std::cos(0.5 * static_cast<double>(x) + 7 * to_uniform(words[1]));
          const auto index = static_cast<std::uint64_t>(((i * side + y) * side + x) * channels + c);
          pixels.push_back(static_cast<float>(wave + 0.3 * to_uniform(random.words(index, 1)[0])));
        }
  }
  return Tensor::from(pixels, {count, side, side, channels}, Device::cpu());
}

std::map<std::string, Tensor> tensors_of(const models::Model& model) {
  std::map<std::string, Tensor> tensors;
  for (const nn::NamedParameter& each : model.parameters()) tensors[each.name] = each.variable.value();
  for (const nn::NamedBuffer& each : model.buffers()) tensors[each.name] = each.tensor;
  return tensors;
}

TEST(Speedrun, HasThePublishedSize) {
  // The published 1.97 million include the filters and scales that are not trained, which are buffers here.
  EXPECT_EQ(models::speedrun().parameter_count(), 1'971'352);
  EXPECT_EQ(models::speedrun_small().parameter_count(), 146'136);
  EXPECT_EQ(models::speedrun_96().parameter_count(), 9'915'416);
  // The published 236 MFLOP are those of convolutions and the head. Pooling, batch norms and GELUs add 0.6.
  EXPECT_NEAR(static_cast<double>(models::speedrun().flops()), 236.3e6 + 0.6e6, 0.1e6);
}

TEST(Speedrun, HasTheNamesOfTheRecordsScript) {
  std::vector<std::string> parameters, buffers;
  const models::Model model = models::speedrun_small();
  for (const nn::NamedParameter& each : model.parameters()) parameters.push_back(each.name);
  for (const nn::NamedBuffer& each : model.buffers()) buffers.push_back(each.name);
  EXPECT_THAT(parameters,
              ::testing::ElementsAre("whiten.bias", "layers.1.conv1.weight", "layers.1.norm1.bias",
                                     "layers.1.conv2.weight", "layers.1.norm2.bias", "layers.2.conv1.weight",
                                     "layers.2.norm1.bias", "layers.2.conv2.weight", "layers.2.norm2.bias",
                                     "layers.3.conv1.weight", "layers.3.norm1.bias", "layers.3.conv2.weight",
                                     "layers.3.norm2.bias", "head.weight"));
  ASSERT_EQ(buffers.size(), 1u + 6 * 3);
  EXPECT_EQ(buffers[0], "whiten.weight");
  EXPECT_EQ(buffers[1], "layers.1.norm1.weight");
}

TEST(Speedrun, HasTheShapesOfTheRecipe) {
  const models::Model model = models::speedrun_96();
  std::vector<nn::LayerSummary> rows;
  model.root().infer({1, 32, 32, 3}, &rows);
  std::map<std::string, Shape> shapes;
  for (const nn::LayerSummary& row : rows) shapes[row.name] = row.outputs.front();
  EXPECT_EQ(shapes.at("whiten"), (Shape{1, 31, 31, 24}));
  EXPECT_EQ(shapes.at("layers.1.conv1"), (Shape{1, 31, 31, 128}));
  EXPECT_EQ(shapes.at("layers.1.conv2"), (Shape{1, 15, 15, 128}));
  EXPECT_EQ(shapes.at("layers.2.conv3"), (Shape{1, 7, 7, 384}));
  EXPECT_EQ(shapes.at("layers.3.gelu3"), (Shape{1, 3, 3, 512}));
  EXPECT_EQ(shapes.at("layers.4"), (Shape{1, 1, 1, 512}));
  EXPECT_EQ(shapes.at("head"), (Shape{1, 10}));
}

TEST(Speedrun, HasTheActivationOfItsOptions) {
  const auto types = [](std::optional<nn::ActivationKind> activation) {
    const models::Model model = models::speedrun_96({.activation = activation});
    std::map<std::string, int> counts;
    for (nn::Module* const module : model.root().modules())
      if (dynamic_cast<nn::Activation*>(module) != nullptr) ++counts[module->describe()];
    return counts;
  };
  using Counts = std::map<std::string, int>;
  EXPECT_EQ(types(std::nullopt), (Counts{{"GELU", 10}}));
  EXPECT_EQ(types(nn::ActivationKind::gelu), (Counts{{"GELU", 10}}));
  EXPECT_EQ(types(nn::ActivationKind::silu), (Counts{{"SiLU", 10}}));
  EXPECT_EQ(message_of<UsageError>([] { models::speedrun({.activation = nn::ActivationKind::relu}); }),
            "speedrun: found the activation ReLU, expected GELU or SiLU");
  for (const char* name :
       {"lenet", "resnet20", "resnet50", "vgg11", "mobilenet_v3_small", "convnext_tiny", "vit_tiny"})
    EXPECT_EQ(message_of<UsageError>([&] { models::make(name, {.activation = nn::ActivationKind::gelu}); }),
              std::string(name) + ": found an activation, but this model has no choice; leave it unset");
}

TEST(Speedrun, AcceptsOtherSizesAndChannels) {
  const NoGrad no_grad;
  for (const Shape& image : {Shape{25, 25, 3}, Shape{28, 28, 1}, Shape{64, 49, 4}}) {
    const models::Model model = models::speedrun_small({.input = image, .classes = 7});
    const Tensor images = Tensor::full({2, image[0], image[1], image[2]}, 0.25, DType::f32, Device::cpu());
    EXPECT_EQ(model(images).shape(), (Shape{2, 7})) << image.text();
  }
}

TEST(Speedrun, ThrowsForInputsThatDoNotFit) {
  EXPECT_EQ(message_of<UsageError>([] {
              models::speedrun({.input = {24, 32, 3}});
            }),
            "speedrun: found an input of shape [24, 32, 3], expected [H, W, C] of at least 25x25 pixels");
  EXPECT_EQ(message_of<UsageError>([] {
              models::speedrun_96({.input = {32, 32}});
            }),
            "speedrun-96: found an input of shape [32, 32], expected [H, W, C] of at least 25x25 pixels");
  EXPECT_EQ(message_of<UsageError>([] { models::speedrun_small({.stem = models::Stem::cifar}); }),
            "speedrun-small: found a stem, but this model has none; leave the stem at automatic");
  EXPECT_EQ(message_of<UsageError>([] { models::speedrun_small({.classes = 0}); }),
            "head: found 0 classes, expected a positive number");
}

TEST(Speedrun, FiltersBeginAsTheIdentity) {
  const auto tensors = tensors_of(models::speedrun_small());
  for (const auto& [name, in] :
       {std::pair("layers.1.conv1.weight", 24), std::pair("layers.1.conv2.weight", 32),
        std::pair("layers.2.conv1.weight", 32)}) {
    const Tensor& filter = tensors.at(name);  // [O, 3, 3, I]
    ASSERT_EQ(filter.size(3), in);
    const std::vector<float> values = filter.to_vector<float>();
    const double bound = 1 / std::sqrt(9.0 * in);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto out = static_cast<int>(i) / (9 * in), place = static_cast<int>(i) / in % 9,
                 channel = static_cast<int>(i) % in;
      if (out < in) {
        EXPECT_EQ(values[i], place == 4 && channel == out ? 1 : 0) << name << " " << i;
      } else {
        EXPECT_LE(std::abs(values[i]), bound) << name << " " << i;
      }
    }
  }
}

TEST(Speedrun, HeadBeginsWithItsDeviation) {
  const auto deviation = [](const Tensor& weight) {
    double squares = 0;
    for (const double value : weight.to(DType::f64).to_vector<double>()) squares += value * value;
    return std::sqrt(squares / static_cast<double>(weight.numel()));
  };
  // The relative standard error of the deviation of n uniform numbers is sqrt(0.2 / n); five of them.
  EXPECT_NEAR(deviation(tensors_of(models::speedrun()).at("head.weight")), 1, 5 * std::sqrt(0.2 / 2560));
  EXPECT_NEAR(deviation(tensors_of(models::speedrun_96()).at("head.weight")), std::sqrt(1 / (3 * 512.0)),
              5 * std::sqrt(0.2 / 5120) * std::sqrt(1 / (3 * 512.0)));
}

TEST(SymmetricEigen, SatisfiesItsEquation) {
  constexpr std::size_t kSize = 12;
  const Random random{.seed = 3, .purpose = RandomPurpose::test};
  std::vector<double> matrix(kSize * kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      matrix[i * kSize + j] = matrix[j * kSize + i] =
          2.0 * to_uniform(random.words(i * kSize + j)[0]) - (i == j ? 0 : 1);
  const models::SymmetricEigen eigen = models::symmetric_eigen(matrix, kSize);
  // Every element of A v is a sum of 12 terms below 2; the rotations add rounding errors of a few sweeps.
  constexpr double kTolerance = 0x1p-53 * 12 * 2 * 64;
  for (std::size_t i = 0; i < kSize; ++i) {
    const double* const v = eigen.vectors.data() + i * kSize;
    if (i > 0) {
      EXPECT_LE(eigen.values[i], eigen.values[i - 1]);
    }
    double largest = 0;
    for (std::size_t row = 0; row < kSize; ++row) {
      double product = 0;
      for (std::size_t k = 0; k < kSize; ++k) product += matrix[row * kSize + k] * v[k];
      EXPECT_NEAR(product, eigen.values[i] * v[row], kTolerance);
      if (std::abs(v[row]) > std::abs(largest)) largest = v[row];
    }
    EXPECT_GT(largest, 0);
    for (std::size_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (std::size_t k = 0; k < kSize; ++k) dot += v[k] * eigen.vectors[j * kSize + k];
      EXPECT_NEAR(dot, i == j ? 1 : 0, kTolerance);
    }
  }
}

TEST(SymmetricEigen, SortsADiagonalMatrix) {
  const models::SymmetricEigen eigen = models::symmetric_eigen({1, 0, 0, 3}, 2);
  EXPECT_EQ(eigen.values, (std::vector<double>{3, 1}));
  EXPECT_EQ(eigen.vectors, (std::vector<double>{0, 1, 1, 0}));
}

// With the eigenvalue l of a filter, the mean square of its results is l / (l + 5e-4).
TEST(Whitening, MakesPatchesOfTheImagesUncorrelated) {
  const Tensor images = smooth_images(20, 26, 3);
  models::Model model = models::speedrun_small({.input = {26, 26, 3}});
  model.to(DType::f64);
  models::whiten(model, images);
  tensors_of(model).at("whiten.bias").copy_from(Tensor::zeros({24}, DType::f64, Device::cpu()));
  nn::Module* whiten = nullptr;
  for (nn::Module* const module : model.root().modules())
    if (module->path() == "whiten") whiten = module;
  ASSERT_NE(whiten, nullptr);
  const NoGrad no_grad;
  const std::vector<double> results = (*whiten)(Variable(images.to(DType::f64))).value().to_vector<double>();
  std::vector<double> moments(24 * 24);
  const std::size_t patches = results.size() / 24;
  for (std::size_t patch = 0; patch < patches; ++patch)
    for (std::size_t i = 0; i < 24; ++i)
      for (std::size_t j = 0; j < 24; ++j)
        moments[24 * i + j] +=
            results[24 * patch + i] * results[24 * patch + j] / static_cast<double>(patches);
  const models::SymmetricEigen eigen = models::symmetric_eigen(models::patch_moments(images), 12);
  ASSERT_GT(eigen.values.back(), 1e-3);  // of the noise
  ASSERT_GT(eigen.values.front(), 100 * eigen.values.back());
  // Sums of 12 products of elements up to 1e2, in f64, over 12,500 patches.
  constexpr double kTolerance = 1e-10;
  for (std::size_t i = 0; i < 24; ++i)
    for (std::size_t j = 0; j < 24; ++j) {
      const double value = eigen.values[i % 12];
      const double sign = i / 12 == j / 12 ? 1 : -1;
      const double expected = i % 12 == j % 12 ? sign * value / (value + 5e-4) : 0;
      EXPECT_NEAR(moments[24 * i + j], expected, kTolerance) << i << " " << j;
    }
}

TEST(Whitening, DependsOnlyOnTheImages) {
  const Tensor images = smooth_images(40, 25, 3);
  const models::Model first = models::speedrun_small({.input = {25, 25, 3}, .seed = 1});
  const models::Model second = models::speedrun_small({.input = {25, 25, 3}, .seed = 2});
  const auto filter = [](const models::Model& model) {
    return tensors_of(model).at("whiten.weight").to_vector<float>();
  };
  EXPECT_NE(filter(first), filter(second)) << "random until whiten() is called";
  models::whiten(first, images);
  models::whiten(second, images.to(DType::f64));
  EXPECT_EQ(filter(first), filter(second));
}

TEST(Whitening, AcceptsConstantImages) {
  const models::Model model = models::speedrun_small({.input = {25, 25, 1}});
  models::whiten(model, Tensor::zeros({3, 25, 25, 1}, DType::f32, Device::cpu()));
  for (const float value : tensors_of(model).at("whiten.weight").to_vector<float>())
    EXPECT_LE(std::abs(value), 1.0001 / std::sqrt(5e-4));
}

TEST(Whitening, ThrowsForImagesAndModelsThatDoNotFit) {
  const models::Model model = models::speedrun_small();
  const auto message = [&](const Shape& shape, double value = 0) {
    return message_of<UsageError>(
        [&] { models::whiten(model, Tensor::full(shape, value, DType::f32, Device::cpu())); });
  };
  EXPECT_EQ(message({2, 32, 32, 1}),
            "whitening: found images of shape [2, 32, 32, 1], expected [N, H, W, 3]");
  EXPECT_EQ(message({0, 32, 32, 3}),
            "whitening: found images of shape [0, 32, 32, 3], expected at least one image of 2x2 pixels");
  EXPECT_EQ(message({2, 32, 1, 3}),
            "whitening: found images of shape [2, 32, 1, 3], expected at least one image of 2x2 pixels");
  EXPECT_EQ(message({2, 32, 32, 3}, NAN), "whitening: found images with values that are not finite");
  EXPECT_EQ(message_of<UsageError>([&] { models::whiten(models::lenet(), smooth_images(2, 32, 3)); }),
            "lenet: found no WhiteningConv2d, expected a model that has one");
}

// The whitening filters and the scales of the batch norms are no parameters, so a step does not change them.
TEST(Speedrun, TrainingKeepsItsFrozenValues) {
  const models::Model model = models::speedrun_small({.input = {25, 25, 3}});
  const Tensor images = smooth_images(8, 25, 3);
  models::whiten(model, images);
  std::map<std::string, std::vector<float>> before;
  for (const auto& [name, tensor] : tensors_of(model)) before[name] = tensor.to_vector<float>();
  optim::Sgd optimizer(model.parameters(), {.momentum = 0.9, .weight_decay = 1e-3});
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, {8}, Device::cpu());
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const Variable loss = cross_entropy_sum(model(images, {.training = true}), labels);
    backward(loss);
    optimizer.step(0.02);
    (step == 0 ? first : last) = loss.value().item();
  }
  EXPECT_LT(last, 0.5 * first);
  for (const auto& [name, tensor] : tensors_of(model)) {
    const bool is_frozen =
        name == "whiten.weight" || (name.ends_with("weight") && tensor.shape().rank() == 1);
    EXPECT_EQ(tensor.to_vector<float>() == before[name], is_frozen) << name;
  }
}

}  // namespace
}  // namespace convoy
