// The structure of models: parameter names, counts, summaries, and errors for inputs that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/nearest_name.h"
#include "convoy/models/model.h"
#include "convoy/models/models.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;

constexpr auto kImageNet = models::Stem::imagenet;

// Returns the shape of a filter in PyTorch's order; here the channels are the last axis.
std::vector<std::int64_t> torch_shape(const Shape& shape) {
  if (shape.rank() != 4) return {shape.sizes().begin(), shape.sizes().end()};
  return {shape[0], shape[3], shape[1], shape[2]};
}

struct Published {
  std::string name;
  std::int64_t parameters;
  double multiply_adds;
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

/// Returns the multiply-adds of the convolutions and linear layers, which is what publications count.
double multiply_adds(const models::Model& model) {
  const Shape& image = model.input();
  std::vector<nn::LayerSummary> rows;
  model.root().infer({1, image[0], image[1], image[2]}, &rows);
  std::int64_t flops = 0;
  for (const nn::LayerSummary& row : rows)
    if (row.type.starts_with("Conv2d") || row.type.starts_with("Linear")) flops += row.flops;
  return static_cast<double>(flops) / 2;
}

class TorchvisionModels : public ::testing::TestWithParam<Published> {};

TEST_P(TorchvisionModels, MatchNamesShapesAndSize) {
  const models::Model model = models::make(GetParam().name, {.input = {224, 224, 3}, .classes = 1000});
  EXPECT_EQ(model.parameter_count(), GetParam().parameters);
  EXPECT_NEAR(multiply_adds(model), GetParam().multiply_adds, 0.01e9);

  std::map<std::string, std::vector<std::int64_t>> found, expected;
  for (const auto& parameter : model.parameters())
    found[parameter.name] = torch_shape(parameter.variable.shape());
  for (const auto& buffer : model.buffers()) found[buffer.name] = torch_shape(buffer.tensor.shape());
  EXPECT_EQ(found.size(), model.parameters().size() + model.buffers().size()) << "a name occurs twice";
  std::ifstream file(testing::source_path("tests/reference/names.json"));
  const auto stored = nlohmann::json::parse(file);
  for (const auto& entry : stored.at(model.name()))
    expected[entry[0]] = entry[1].get<std::vector<std::int64_t>>();
  EXPECT_EQ(found, expected);

  // timm's names are the same. load_state_dict() ignores num_batches_tracked.
  std::ifstream timm_file(testing::source_path("tests/reference/timm_names.json"));
  std::set<std::string> names, timm_names;
  for (const auto& [name, shape] : found) names.insert(name);
  const auto timm = nlohmann::json::parse(timm_file);
  for (const std::string name : timm.at(model.name()))
    if (!name.ends_with(".num_batches_tracked")) timm_names.insert(name);
  EXPECT_EQ(timm_names, names);
}

// The numbers of torchvision's documentation of its weights.
INSTANTIATE_TEST_SUITE_P(, TorchvisionModels,
                         ::testing::Values(Published{"resnet18", 11689512, 1.814e9},
                                           Published{"resnet34", 21797672, 3.664e9},
                                           Published{"resnet50", 25557032, 4.089e9}),
                         [](const auto& each) { return each.param.name; });

TEST(Models, HaveThePublishedSize) {
  EXPECT_EQ(models::lenet().parameter_count(), 62006);
  EXPECT_EQ(models::lenet({.input = {28, 28, 1}}).parameter_count(), 44426);
  EXPECT_EQ(models::resnet20().parameter_count(), 272474);
  EXPECT_NEAR(multiply_adds(models::resnet20()), 0.041e9, 0.0005e9);
  EXPECT_EQ(models::resnet18().parameter_count(), 11173962);
  // torchvision's and timm's documentation.
  const models::Options imagenet{.input = {224, 224, 3}, .classes = 1000};
  EXPECT_EQ(models::mobilenet_v3_small(imagenet).parameter_count(), 2542856);
  EXPECT_EQ(models::vit_tiny(imagenet).parameter_count(), 5717416);
}

TEST(Models, ReportWhetherTheyHaveABatchNorm) {
  for (const std::string& name : models::names()) {
    // The initialization of these is slow, and their layers are those of other models.
    if (name == "resnet50" || name == "resnet101" || name == "vgg11" || name == "convnext_tiny") continue;
    const models::Options options{.input = {48, 48, 3}};
    EXPECT_EQ(models::find(name).has_batch_norm, !models::make(name, options).buffers().empty()) << name;
  }
}

TEST(Models, ChooseTheStemByTheImageSize) {
  const auto stem_of = [](const models::Options& options) {
    return models::resnet18(options).parameters().front().variable.shape();
  };
  const Shape cifar{64, 3, 3, 3}, imagenet{64, 7, 7, 3};
  EXPECT_EQ(stem_of({.input = {64, 65, 3}}), cifar);
  EXPECT_EQ(stem_of({.input = {65, 65, 3}}), imagenet);
  EXPECT_EQ(stem_of({.input = {100, 100, 3}}), imagenet);
  EXPECT_EQ(stem_of({.input = {96, 96, 3}, .stem = kImageNet}), imagenet);
  EXPECT_EQ(stem_of({.input = {128, 128, 3}, .stem = models::Stem::cifar}), cifar);
  EXPECT_THAT(message_of<UsageError>([] { models::lenet({.stem = models::Stem::cifar}); }),
              StartsWith("lenet:"));
  EXPECT_THAT(message_of<UsageError>([] { models::resnet20({.stem = kImageNet}); }), StartsWith("resnet20:"));
}

TEST(Models, AcceptOddImageSizesAndOtherChannels) {
  const models::Options options{.input = {37, 45, 4}, .classes = 3};
  models::Options with_pool = options;
  with_pool.stem = kImageNet;
  const Tensor images = Tensor::full({2, 37, 45, 4}, 0.25, DType::f32, Device::cpu());
  const NoGrad no_grad;
  for (const models::Model& model :
       {models::lenet(options), models::resnet20(options), models::resnet18(with_pool)}) {
    EXPECT_EQ(model(images).shape(), (Shape{2, 3})) << model.name();
  }
}

TEST(Models, ThrowWithTheLayerIfTheInputDoesNotFit) {
  EXPECT_THAT(message_of<UsageError>([] {
                models::lenet({.input = {12, 12, 3}});
              }),
              AllOf(StartsWith("conv2 (Conv2d 6 -> 16, 5x5)"), HasSubstr("does not fit")));
  EXPECT_THAT(message_of<UsageError>([] {
                models::lenet({.input = {3, 32, 3}});
              }),
              StartsWith("conv1 (Conv2d 3 -> 6, 5x5)"));
  EXPECT_THAT(message_of<UsageError>([] {
                models::resnet20({.input = {32, 32}});
              }),
              StartsWith("resnet20: found an input of shape [32, 32]"));
  EXPECT_THAT(message_of<UsageError>([] {
                models::resnet20({.input = {32, 0, 3}});
              }),
              HasSubstr("[32, 0, 3]"));
  EXPECT_THAT(message_of<UsageError>([] {
                models::vgg11({.input = {31, 32, 3}});
              }),
              StartsWith("features.20 (MaxPool2d 2x2 stride 2)"));
  EXPECT_EQ(message_of<UsageError>([] {
              models::vit_tiny({.input = {32, 40, 3}});
            }),
            "vit_tiny: found an input of shape [32, 40, 3], expected sides that are multiples of 16");
  EXPECT_THAT(message_of<UsageError>([] { models::resnet20({.classes = 0}); }), HasSubstr("Linear 64 -> 0"));
}

TEST(Model, ThrowsForImagesOfAnotherSize) {
  const models::Model model = models::lenet();
  const Tensor grayscale = Tensor::zeros({2, 28, 28, 1}, DType::f32, Device::cpu());
  EXPECT_EQ(
      message_of<UsageError>([&] { model(grayscale); }),
      "lenet: found an input of shape [2, 28, 28, 1], expected [N, 32, 32, 3], for which the model was built");
}

TEST(Model, SummaryListsItsLayers) {
  // The first convolution has 2 x 28 x 28 x 6 x 5 x 5 x 3 = 705,600 FLOPs.
  EXPECT_EQ(models::lenet().summary(),
            R"(layer    type                        output        parameters  MFLOPs
input                                [32, 32, 3]
conv1    Conv2d 3 -> 6, 5x5 + ReLU   [28, 28, 6]          456    0.71
relu1    ReLU, fused into conv1      [28, 28, 6]
pool1    MaxPool2d 2x2 stride 2      [14, 14, 6]                 0.00
conv2    Conv2d 6 -> 16, 5x5 + ReLU  [10, 10, 16]       2,416    0.48
relu2    ReLU, fused into conv2      [10, 10, 16]
pool2    MaxPool2d 2x2 stride 2      [5, 5, 16]                  0.00
flatten  Flatten                     [400]
fc1      Linear 400 -> 120 + ReLU    [120]             48,120    0.10
relu3    ReLU, fused into fc1        [120]
fc2      Linear 120 -> 84 + ReLU     [84]              10,164    0.02
relu4    ReLU, fused into fc2        [84]
fc3      Linear 84 -> 10             [10]                 850    0.00
total    lenet                                         62,006    1.31
)");
}

TEST(Model, SummaryShowsWhatABlockFuses) {
  const models::Model model = models::resnet20();
  std::vector<nn::LayerSummary> rows;
  model.root().infer({1, 32, 32, 3}, &rows);
  std::map<std::string, std::string> types;
  std::vector<std::string> block;
  for (const nn::LayerSummary& row : rows) {
    types[row.name] = row.type;
    if (row.name.starts_with("layer2.0.")) block.push_back(row.name.substr(9));
  }
  EXPECT_THAT(block, ElementsAre("conv1", "bn1", "relu1", "conv2", "bn2", "downsample.0", "downsample.1"));
  EXPECT_EQ(types["layer2.0.conv1"], "Conv2d 16 -> 32, 3x3 stride 2 padding 1");
  EXPECT_EQ(types["layer2.0.bn1"], "BatchNorm2d 32 + ReLU");
  EXPECT_EQ(types["layer2.0.relu1"], "ReLU, fused into bn1");
  EXPECT_EQ(types["layer2.0.bn2"], "BatchNorm2d 32 + residual + ReLU");
  EXPECT_EQ(types["layer2.0.downsample.1"], "BatchNorm2d 32");
}

TEST(Model, MovesAllHandlesAndReturnsThisOne) {
  models::Model model = models::lenet();
  const models::Model other = model;
  const std::string summary = model.summary();
  EXPECT_EQ(&model.to(DType::f64), &model);
  EXPECT_EQ(&model.to(Device::cpu()), &model);
  EXPECT_EQ(other.parameters()[0].variable.dtype(), DType::f64);
  EXPECT_EQ(other.summary(), summary);
}

models::Model norm_model(const models::Options& options) {
  auto net = std::make_shared<nn::Sequential>(std::vector<nn::Layer>{
      {"bn", std::make_shared<nn::BatchNorm2d>(3)}, {"pool", std::make_shared<nn::GlobalAvgPool2d>()}});
  return {"norm", net, options.input, options.seed, options.device};
}

TEST(Models, AddAModelWithANewName) {
  models::add({.name = "norm", .make = norm_model, .has_batch_norm = true});
  EXPECT_EQ(models::make("norm", {.input = {4, 4, 3}, .classes = 3}).outputs().front(), Shape{3});
  EXPECT_EQ(models::names().back(), "norm");
  EXPECT_EQ(message_of<UsageError>([] { models::add({.name = "norm", .make = norm_model}); }),
            "model 'norm': found another model with this name, expected a new one");
  EXPECT_EQ(message_of<UsageError>([] { models::add({.name = "empty"}); }),
            "model 'empty': found no name or no function that makes it, expected both");
  EXPECT_EQ(message_of<UsageError>([] { models::make("norm", {.classes = 4}); }),
            "model 'norm': found an output of shape [3] for an image, expected [4], one logit per class");
  models::add({.name = "undeclared", .make = norm_model});
  EXPECT_EQ(message_of<UsageError>([] { models::make("undeclared", {.classes = 3}); }),
            "model 'undeclared': found the batch norm bn, expected has_batch_norm in its entry");
}

TEST(NearestName, HasTheSmallestEditDistance) {
  const std::vector<std::string> names{"lenet", "resnet20", "resnet18"};
  EXPECT_EQ(nearest_name("resnet81", names), "resnet18");  // a swap is one edit
  EXPECT_EQ(nearest_name("ResNet-20", names), "resnet20");
  EXPECT_EQ(nearest_name("lnet", names), "lenet");
  EXPECT_EQ(nearest_name("vgg", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(Models, SuggestTheNearestNameForAnUnknownOne) {
  // Another test may have added models.
  EXPECT_THAT(
      message_of<UsageError>([] { models::make("resnet81"); }),
      StartsWith("unknown model 'resnet81'; did you mean 'resnet18'? (expected one of: lenet, resnet20, "
                 "resnet18, resnet34, resnet50"));
  EXPECT_THAT(
      message_of<UsageError>([] { models::make("transformer"); }),
      StartsWith(
          "unknown model 'transformer' (expected one of: lenet, resnet20, resnet18, resnet34, resnet50"));
}

// Tests that initial weights have the distributions of PyTorch's defaults. The random numbers differ from
// PyTorch's.

std::vector<float> weights(const models::Model& model, const std::string& name) {
  for (const nn::NamedParameter& parameter : model.parameters()) {
    if (parameter.name == name) return parameter.variable.value().to_vector<float>();
  }
  ADD_FAILURE() << model.name() << " has no " << name;
  return {};
}

struct Moments {
  double mean = 0, variance = 0, kurtosis = 0, max_abs = 0;
};

Moments moments_of(const std::vector<float>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const double v : values) {
    m.mean += v / n;
    m.max_abs = std::max(m.max_abs, std::abs(v));
  }
  double fourth = 0;
  for (const double v : values) {
    const double square = (v - m.mean) * (v - m.mean);
    m.variance += square / n;
    fourth += square * square / n;
  }
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

// Expects a mean of 0, the given variance and the given kurtosis. For n samples, the standard error of the
// mean is sigma / sqrt(n), that of the variance is variance sqrt((kurtosis - 1) / n), and that of the
// kurtosis is at most sqrt(24 / n). The bounds are five standard errors, so that a correct generator fails
// for one in millions of seeds.
void expect_distribution(const std::vector<float>& values, double variance, double kurtosis) {
  const auto n = static_cast<double>(values.size());
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(m.variance, variance, 5 * variance * std::sqrt((kurtosis - 1) / n));
  EXPECT_NEAR(m.kurtosis, kurtosis, 5 * std::sqrt(24 / n));
}

// Expects the uniform distribution U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
void expect_uniform(const std::vector<float>& values, double fan_in) {
  const double bound = 1 / std::sqrt(fan_in);
  expect_distribution(values, bound * bound / 3, 1.8);
  EXPECT_LE(moments_of(values).max_abs, bound);
}

TEST(Initialization, ConvolutionsAndLinearsAreUniformByFanIn) {
  const models::Model model = models::lenet();
  expect_uniform(weights(model, "conv2.weight"), 6 * 25);
  expect_uniform(weights(model, "fc1.weight"), 400);
  expect_uniform(weights(model, "fc1.bias"), 400);  // by the fan-in of the weights
  expect_uniform(weights(model, "fc2.weight"), 120);
}

TEST(Initialization, ConvolutionsOfResNetsAreNormalByFanOut) {
  const models::Model model = models::resnet18();
  expect_distribution(weights(model, "layer1.0.conv1.weight"), 2.0 / (9 * 64), 3);
  expect_distribution(weights(model, "layer2.0.conv1.weight"), 2.0 / (9 * 128), 3);  // fan-in would be 9 x 64
  expect_distribution(weights(model, "layer2.0.downsample.0.weight"), 2.0 / 128, 3);
  expect_uniform(weights(model, "fc.weight"), 512);
}

TEST(Initialization, BatchNormsAreInitializedToTheIdentity) {
  const models::Model model = models::resnet20();
  for (const float scale : weights(model, "layer3.2.bn2.weight")) EXPECT_EQ(scale, 1);
  for (const float shift : weights(model, "layer3.2.bn2.bias")) EXPECT_EQ(shift, 0);
  for (const nn::NamedBuffer& buffer : model.buffers()) {
    const float expected = buffer.name.ends_with("running_var") ? 1 : 0;
    for (const float value : buffer.tensor.to_vector<float>()) EXPECT_EQ(value, expected) << buffer.name;
  }
}

TEST(Initialization, DependsOnlyOnSeedAndName) {
  const std::string name = "layer1.0.conv1.weight", other = "layer1.1.conv1.weight";  // of equal shape
  const models::Model model = models::resnet20({.seed = 5});
  EXPECT_EQ(weights(model, name), weights(models::resnet20({.seed = 5}), name));
  EXPECT_NE(weights(model, name), weights(models::resnet20({.seed = 6}), name));
  EXPECT_NE(weights(model, name), weights(model, other));
  // An equal layer of a model with other options has equal weights.
  EXPECT_EQ(weights(model, name),
            weights(models::resnet20({.input = {16, 16, 3}, .classes = 3, .seed = 5}), name));
}

}  // namespace

}  // namespace convoy
