// Exports of all models and ops, computed by the interpreter and compared with the engine.
#include "convoy/engine/io/onnx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <optional>
#include <ostream>

#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/models.h"
#include "tests/onnx/onnx_file.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

/// Draws from [low, high) that f32 represents, so that the file and a network in f64 have equal numbers. A
/// linear congruential generator, because Philox takes seconds for ResNet-50 without optimization.
class Draws {
 public:
  std::vector<float> operator()(std::int64_t count, double low, double high) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(low + (high - low) * static_cast<double>(state_ >> 40) * 0x1p-24);
    }
    return values;
  }

 private:
  std::uint64_t state_ = 11;
};

void fill(const Tensor& tensor, const std::vector<float>& values) {
  tensor.copy_from(Tensor::from(values, tensor.shape(), Device::cpu()).to(tensor.dtype()));
}

/// Gives all parameters and buffers values that differ from their neighbors, and converts them to f64.
/// Filters and weights preserve the variance of their input.
void randomize(nn::Module& network) {
  Draws draw;
  for (const nn::NamedParameter& parameter : network.parameters()) {
    const Tensor& value = parameter.variable.value();
    const bool is_scale = parameter.kind == nn::ParameterKind::norm_scale;
    const double fan_in = value.shape().rank() > 1 ? static_cast<double>(value.numel() / value.size(0)) : 10;
    const double bound = std::sqrt(3 / fan_in);
    fill(value, is_scale ? draw(value.numel(), 0.5, 1.5) : draw(value.numel(), -bound, bound));
  }
  for (const nn::NamedBuffer& buffer : network.buffers()) {
    const bool is_positive = buffer.name.ends_with("var") || buffer.kind == nn::ParameterKind::norm_scale;
    fill(buffer.tensor,
         is_positive ? draw(buffer.tensor.numel(), 0.5, 1.5) : draw(buffer.tensor.numel(), -0.5, 0.5));
  }
  network.to(DType::f64);
}

/// Returns images [N, H, W, C] as [N, C, H, W].
OnnxTensor channels_first(const Tensor& images) {
  const std::int64_t n = images.size(0), h = images.size(1), w = images.size(2), c = images.size(3);
  const std::vector<double> from = images.to_vector<double>();
  OnnxTensor to{{n, c, h, w}, std::vector<double>(from.size())};
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t channel = at % c, pixel = at / c % (h * w), image = at / (c * h * w);
    to.values[static_cast<std::size_t>((image * c + channel) * h * w + pixel)] = from[i];
  }
  return to;
}

Tensor random_images(const Shape& image, std::int64_t count = 2) {
  const Shape shape{count, image[0], image[1], image[2]};
  return Tensor::from(Draws()(shape.numel(), 0, 1), shape, Device::cpu()).to(DType::f64);
}

/// Compares the results of the network and of the file for the same images. `tolerance` is relative to the
/// largest result.
void expect_equal(nn::Module& network, const OnnxFile& file, const Tensor& images, const Tensor& pixels,
                  double tolerance) {
  const NoGrad no_grad;
  const Tensor expected = network(Variable(images)).value();
  const OnnxTensor found = run_onnx(file, channels_first(pixels));
  if (expected.shape().rank() == 2) {
    EXPECT_THAT(found.shape, ElementsAre(expected.size(0), expected.size(1)));
  }
  const std::vector<double> values =
      expected.shape().rank() == 4 ? channels_first(expected).values : expected.to_vector<double>();
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  ASSERT_GT(largest, 0);
  ASSERT_EQ(found.values.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(found.values[i], values[i], tolerance * largest) << "element " << i;
}

// Of a network in f64 whose constants are exact in f32. The file rounds the epsilon of batch norms, 1e-5, to
// f32, an error of 1e-5 * 2^-24 = 6e-13 relative to a variance of at least 0.5; 50 layers add up. All else is
// rounding in f64.
constexpr double kExact = 1e-10;
// With GELUs: sqrt(2) is rounded to f32, which changes x / sqrt(2) by 2^-24 and a GELU by less than 0.3 times
// that, relative to x. Ten layers add up; so does a factor such as 1/9, with 2^-25.
constexpr double kWithRoundedConstants = 10 * 0x1p-24;

struct Case {
  std::string model;
  Shape image;
  models::Stem stem = models::Stem::automatic;
  double tolerance = kExact;
  std::optional<nn::ActivationKind> activation = {};
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << (c.stem == models::Stem::imagenet ? ", imagenet stem, " : ", ")
       << (c.activation ? nn::Activation(*c.activation).describe() + ", " : "") << c.image.text();
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + (info.param.stem == models::Stem::imagenet ? "_imagenet" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_" + std::to_string(info.index);
}

class OnnxOfModel : public ::testing::TestWithParam<Case> {};

TEST_P(OnnxOfModel, ComputesTheSameLogits) {
  const Case& c = GetParam();
  const models::Model model =
      models::make(c.model, {.input = c.image, .classes = 7, .stem = c.stem, .activation = c.activation});
  randomize(model.root());
  const OnnxFile file = read_onnx(io::encode_onnx(model.root(), c.image));
  EXPECT_THAT(file.inputs, ElementsAre(Pair("images", ElementsAre("N", std::to_string(c.image[2]),
                                                                  std::to_string(c.image[0]),
                                                                  std::to_string(c.image[1])))));
  EXPECT_THAT(file.outputs, ElementsAre(Pair("logits", ElementsAre("N", "7"))));
  const Tensor images = random_images(c.image);
  expect_equal(model.root(), file, images, images, c.tolerance);

  // Every tensor of the checkpoint is in the file, in the checkpoint's layout.
  std::size_t scalars = 0;  // and lists of integers
  for (const auto& [name, tensor] : file.constants) scalars += name.starts_with("constant_") ? 1 : 0;
  const std::vector<io::NamedTensor> tensors = io::state_dict(model.root());
  EXPECT_EQ(file.constants.size(), tensors.size() + scalars);
  for (const io::NamedTensor& named : tensors) {
    const auto found = file.constants.find(named.name);
    ASSERT_NE(found, file.constants.end()) << named.name;
    EXPECT_TRUE(Shape(std::span(found->second.shape)) == named.tensor.shape()) << named.name;
    EXPECT_TRUE(found->second.values == named.tensor.to_vector<double>()) << named.name;
  }
}

/// Small images that are not square. The last feature maps of the ResNets have 2x3 pixels for images of 14x18
/// and the stem for CIFAR.
INSTANTIATE_TEST_SUITE_P(
    All, OnnxOfModel,
    ::testing::Values(Case{"lenet", {28, 20, 1}}, Case{"lenet", {20, 32, 3}}, Case{"resnet20", {14, 18, 3}},
                      Case{"resnet18", {14, 18, 3}, models::Stem::cifar},
                      Case{"resnet18", {40, 34, 3}, models::Stem::imagenet},
                      Case{"resnet34", {14, 10, 3}, models::Stem::cifar},
                      Case{"resnet34", {40, 34, 3}, models::Stem::imagenet},
                      Case{"resnet50", {14, 10, 3}, models::Stem::cifar},
                      Case{"resnet50", {40, 34, 3}, models::Stem::imagenet},
                      Case{"resnet101", {14, 10, 3}, models::Stem::cifar},
                      Case{"mobilenet_v3_small", {40, 34, 3}, models::Stem::automatic, kWithRoundedConstants},
                      Case{"convnext_tiny", {64, 40, 3}, models::Stem::automatic, 20 * kWithRoundedConstants},
                      Case{"vit_tiny", {32, 48, 3}, models::Stem::automatic, 20 * kWithRoundedConstants},
                      Case{"speedrun", {49, 25, 3}, models::Stem::automatic, kWithRoundedConstants},
                      Case{"speedrun-small", {49, 25, 3}, models::Stem::automatic, kWithRoundedConstants},
                      Case{"speedrun-96", {25, 25, 3}, models::Stem::automatic, kWithRoundedConstants},
                      Case{"speedrun-small",
                           {25, 25, 3},
                           models::Stem::automatic,
                           kWithRoundedConstants,
                           nn::ActivationKind::silu}),
    case_name);

TEST(Onnx, EveryModelIsTested) {
  const auto* const suite = ::testing::UnitTest::GetInstance();
  std::string names;
  for (int i = 0; i < suite->total_test_suite_count(); ++i)
    for (int j = 0; j < suite->GetTestSuite(i)->total_test_count(); ++j)
      names += std::string(suite->GetTestSuite(i)->GetTestInfo(j)->name()) + " ";
  for (std::string name : models::names()) {
    if (name == "vgg11") continue;  // takes 1 GB in f64; TheAdaptivePoolingOfVgg exports what is special
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_THAT(names, HasSubstr("/" + name + "_"));
  }
}

TEST(Onnx, ExportsInsideNoGrad) {
  const models::Model model = models::lenet({.input = {20, 16, 3}, .classes = 4});
  const std::string expected = io::encode_onnx(model.root(), {20, 16, 3});
  const NoGrad no_grad;
  EXPECT_EQ(io::encode_onnx(model.root(), {20, 16, 3}), expected);
  EXPECT_TRUE(NoGrad::active());
  EXPECT_GT(model.flops(), 0);
}

TEST(Onnx, NormalizesInTheGraph) {
  const models::Model model = models::lenet({.input = {20, 16, 3}, .classes = 4});
  randomize(model.root());
  const OnnxFile file = read_onnx(io::encode_onnx(model.root(), {20, 16, 3},
                                                  {.name = "net",
                                                   .mean = {0.5f, 0.25f, 0.75f},
                                                   .inverse_std = {4, 2, 8},
                                                   .metadata = {{"key", "value é"}}}));
  EXPECT_EQ(file.graph_name, "net");
  EXPECT_EQ(file.producer, "Convoy");
  EXPECT_EQ(file.opset, io::kOnnxOpset);
  EXPECT_EQ(file.ir_version, 8);
  EXPECT_THAT(file.metadata, ElementsAre(Pair("key", "value é")));
  const Tensor pixels = random_images({20, 16, 3});
  const auto row = [](const std::vector<double>& values) {
    return Variable(Tensor::from(values, {3}, Device::cpu()));
  };
  const Variable images = (Variable(pixels) - row({0.5, 0.25, 0.75})) * row({4, 2, 8});
  expect_equal(model.root(), file, images.value(), pixels, kExact);
}

/// A network of one function.
class Function final : public nn::Module {
 public:
  using F = std::function<Variable(const Variable&)>;
  explicit Function(F f) : f_(std::move(f)) {}
  std::string describe() const override { return "Function"; }

 private:
  Variable forward(const Variable& x, const nn::ForwardContext&) override { return f_(x); }
  F f_;
};

TEST(Onnx, ComputesEveryOperation) {
  const std::pair<const char*, Function::F> functions[] = {
      {"Relu", [](const Variable& x) { return relu(x - 0.5); }},
      {"Erf", [](const Variable& x) { return gelu(x - 0.5); }},
      {"Sigmoid", [](const Variable& x) { return silu(x * 3 - 1); }},
      {"Sigmoid", [](const Variable& x) { return sigmoid(x); }},
      {"HardSwish", [](const Variable& x) { return hardswish(x * 8 - 4); }},
      {"HardSigmoid", [](const Variable& x) { return hardsigmoid(x * 8 - 4); }},
      {"Softplus", [](const Variable& x) { return softplus(x * 4 - 2, 1.5); }},
      {"Sigmoid", [](const Variable& x) { return gelu_tanh(x * 8 - 4); }},
      {"Clip", [](const Variable& x) { return relu6(x * 16 - 4); }},
      {"Clip", [](const Variable& x) { return clamp(x, 0.25, 0.75); }},
      {"LeakyRelu", [](const Variable& x) { return leaky_relu(x - 0.5, 0.2); }},
      {"Elu", [](const Variable& x) { return elu(x - 0.5, 0.75); }},
      {"Tanh", [](const Variable& x) { return tanh(x); }},
      {"Exp", [](const Variable& x) { return exp(x); }},
      {"Log", [](const Variable& x) { return log(x + 1); }},
      {"Sqrt", [](const Variable& x) { return sqrt(x); }},
      {"Abs", [](const Variable& x) { return abs(x - 0.5); }},
      {"Add", [](const Variable& x) { return x + tanh(x); }},
      {"Sub", [](const Variable& x) { return tanh(x) - x; }},
      {"Mul", [](const Variable& x) { return x * tanh(x); }},
      {"Div", [](const Variable& x) { return tanh(x) / (x + 1); }},
      {"Max", [](const Variable& x) { return maximum(x, x * 2 - 0.5); }},
      {"Min", [](const Variable& x) { return minimum(x, x * 2 - 0.5); }},
      {"MaxPool", [](const Variable& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"AveragePool",
       [](const Variable& x) { return avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"MaxPool",
       [](const Variable& x) {
         return max_pool2d(x, {.kernel = {2, 3}, .stride = {3, 2}, .padding = 1, .ceil_mode = true});
       }},
      {"AveragePool",
       [](const Variable& x) {
         return avg_pool2d(x, {.kernel = 3, .stride = {2, 4}, .padding = {1, 0}, .count_include_pad = false});
       }},
      {"AveragePool",  // the last windows extend past the image without padding
       [](const Variable& x) {
         return avg_pool2d(x, {.kernel = {2, 3}, .stride = {2, 3}, .ceil_mode = true});
       }},
      {"Pad",  // past padding that counts
       [](const Variable& x) {
         return avg_pool2d(x, {.kernel = {3, 2}, .stride = {4, 3}, .padding = {0, 1}, .ceil_mode = true});
       }},
      {"AveragePool",
       [](const Variable& x) {
         return adaptive_avg_pool2d(x, {3, 1});
       }},
      {"MaxPool",
       [](const Variable& x) {
         return adaptive_max_pool2d(x, {2, 5});
       }},
      {"GlobalAveragePool", [](const Variable& x) { return adaptive_avg_pool2d(x, 1); }},
      {"Pad",
       [](const Variable& x) {
         return pad(relu(x), {{}, {1, 2}, {0, 3}, {1, 0}}, 0.5);
       }},
      {"Pad",
       [](const Variable& x) {
         return pad(reshape(x, {x.shape()[0], 30, 3}), {{}, {1, 2}, {0, 3}});
       }},
      {"Gather",
       [](const Variable& x) {
         return pad(x, {{}, {3, 2}, {0, 4}, {}}, PaddingMode::reflect);
       }},
      {"Gather",
       [](const Variable& x) {
         return pad(x, {{}, {3, 2}, {0, 4}, {1, 1}}, PaddingMode::replicate);
       }},
      {"Gather",
       [](const Variable& x) {
         return pad(reshape(x, {x.shape()[0], 30, 3}), {{}, {3, 2}, {0, 2}}, PaddingMode::circular);
       }},
      {"GlobalAveragePool", [](const Variable& x) { return global_avg_pool2d(x); }},
      {"Flatten", [](const Variable& x) { return flatten(x); }},
      // A factor per image and channel.
      {"Reshape",
       [](const Variable& x) { return x * unsqueeze(unsqueeze(sigmoid(global_avg_pool2d(x)), 1), 1); }},
      // One pixel: the engine records a reshape instead.
      {"Flatten",
       [](const Variable& x) { return flatten(avg_pool2d(x, {.kernel = 7, .stride = 7, .padding = 1})); }},
  };
  const Tensor images = random_images({6, 5, 3});
  for (const auto& [type, function] : functions) {
    SCOPED_TRACE(type);
    Function network(function);
    const OnnxFile file = read_onnx(io::encode_onnx(network, {6, 5, 3}));
    EXPECT_TRUE(std::any_of(file.nodes.begin(), file.nodes.end(),
                            [type = type](const OnnxNode& node) { return node.type == type; }));
    expect_equal(network, file, images, images, kWithRoundedConstants);
  }
}

TEST(Onnx, ExportsWindowsAndPaddingsOfConvolutions) {
  nn::Sequential network = nn::sequential(
      nn::Conv2d(3, 4, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}}),
      nn::Conv2d(4, 4, {.kernel = {2, 4}, .padding = kSamePadding, .dilation = {3, 1}, .groups = 2}),
      nn::Conv2d(4, 5, {.padding = {1, 2}, .padding_mode = PaddingMode::reflect}), nn::ReLU(),
      nn::AdaptiveMaxPool2d({2, 7}));
  randomize(network);
  const OnnxFile file = read_onnx(io::encode_onnx(network, {10, 9, 3}));
  const Tensor images = random_images({10, 9, 3});
  expect_equal(network, file, images, images, kExact);
  std::vector<std::string> types;
  for (const OnnxNode& node : file.nodes) types.push_back(node.type);
  EXPECT_THAT(types,
              ElementsAre("Conv", "Pad", "Conv", "Gather", "Gather", "Conv", "Relu", "MaxPool", "Identity"));
}

TEST(Onnx, ExportsGroupsEpiloguesAndBatchNormsOfFeatures) {
  const auto relu_layer = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
  nn::Sequential network({
      {"conv",
       std::make_shared<nn::Conv2d>(4, 6, nn::Conv2dLayerOptions{.kernel = 3, .stride = 2, .groups = 2})},
      {"relu1", relu_layer()},
      {"norm1", std::make_shared<nn::BatchNorm2d>(6, BatchNormOptions{.epsilon = 0.25})},
      {"relu2", relu_layer()},
      {"flatten", std::make_shared<nn::Flatten>()},
      {"fc1", std::make_shared<nn::Linear>(36, 5, false)},
      {"relu3", relu_layer()},
      {"fc2", std::make_shared<nn::Linear>(5, 3)},
  });
  randomize(network);
  const OnnxFile file = read_onnx(io::encode_onnx(network, {7, 5, 4}));
  const Tensor images = random_images({7, 5, 4});
  expect_equal(network, file, images, images, kExact);
  std::vector<std::string> types;
  for (const OnnxNode& node : file.nodes) types.push_back(node.type);
  EXPECT_THAT(types, ElementsAre("Conv", "Relu", "BatchNormalization", "Relu", "Flatten", "Gemm", "Relu",
                                 "Gemm", "Identity"));
}

std::string refusal(const Function::F& function, const Shape& image = {4, 4, 3}) {
  Function network(function);
  return message_of<UsageError>([&] { io::encode_onnx(network, image); });
}

/// Returns a tensor of the type of x, such as a parameter of a module that is not registered.
Variable own(const Variable& x, const Shape& shape) {
  return Variable(Tensor::from(Draws()(shape.numel(), 0.5, 2), shape, Device::cpu()).to(x.dtype()),
                  /*requires_grad=*/true);
}

TEST(Onnx, ComputesOperationsThatNameAxes) {
  const auto rows = [](const Variable& x) { return reshape(x, {x.shape()[0], 30, 3}); };  // [N, T, C]
  const auto heads = [](const Variable& x) {
    return permute(reshape(x, {x.shape()[0], 10, 3, 3}), {0, 2, 1, 3});
  };
  const std::pair<const char*, Function::F> functions[] = {
      {"Transpose",
       [](const Variable& x) {
         return permute(x, {0, 2, 3, 1});
       }},
      {"Reshape",
       [](const Variable& x) {
         return reshape(x, {x.shape()[0], 90});
       }},
      {"Reshape",
       [](const Variable& x) {
         return reshape(reshape(x, {x.shape()[0] * 6, 15}), {x.shape()[0], 90});
       }},
      {"Slice", [](const Variable& x) { return slice(x, 2, 1, 5, 2); }},
      {"Slice", [&](const Variable& x) { return sigmoid(slice(rows(x), 1, 0, 1)); }},
      {"Concat",
       [](const Variable& x) {
         return concat({x, exp(x), slice(x, 3, 0, 1)}, 3);
       }},
      {"Expand",
       [&](const Variable& x) {
         return concat({broadcast_to(own(x, {1, 1, 3}), {x.shape()[0], 1, 3}), rows(x)}, 1);
       }},
      {"Expand",
       [&](const Variable& x) {
         return broadcast_to(slice(rows(x), 1, 0, 1), {x.shape()[0], 2, 3});
       }},
      {"ReduceSum", [&](const Variable& x) { return mean(rows(x), {1}); }},
      {"ReduceSum",
       [](const Variable& x) {
         return sum(x, {1, 3}, true);
       }},
      {"MatMul",
       [](const Variable& x) {
         return matmul(reshape(x, {x.shape()[0], 30, 3}), own(x, {3, 4}));
       }},
      {"MatMul", [&](const Variable& x) { return matmul(rows(x), transpose(rows(x), 1, 2)); }},
      {"Gemm",
       [&](const Variable& x) {
         return linear(rows(x), own(x, {4, 3}), own(x, {4}), /*with_relu=*/true);
       }},
      {"Gemm",
       [](const Variable& x) {
         return linear(x, own(x, {4, 3}), {});
       }},
      {"Softmax", [&](const Variable& x) { return softmax(rows(x)); }},
      {"Softmax", [](const Variable& x) { return softmax(x, 1); }},
      {"LogSoftmax", [](const Variable& x) { return log_softmax(x); }},
      {"LayerNormalization",
       [](const Variable& x) { return layer_norm(x, {3}, own(x, {3}), own(x, {3})) + x; }},
      {"LayerNormalization",
       [](const Variable& x) {
         return layer_norm(x, {5, 3});
       }},
      {"LayerNormalization", [](const Variable& x) { return layer_norm(x, {3}, {}, own(x, {3})); }},
      {"Pow", [](const Variable& x) { return pow(x + 1, 1.5); }},
      {"Mul", [](const Variable& x) { return relu(x) * own(x, {3}); }},
      {"Add",
       [](const Variable& x) {
         return max_pool2d(x, {.kernel = 1, .stride = 1}) + own(x, {6, 5, 3});
       }},
      {"Mul",
       [](const Variable& x) {
         return x * own(x, {1, 1, 1, 3});
       }},
      {"Softmax",
       [&](const Variable& x) {
         return scaled_dot_product_attention(heads(x), heads(x) * 2, exp(heads(x)));
       }},
      {"Softmax",
       [&](const Variable& x) {
         return scaled_dot_product_attention(heads(x), heads(x), heads(x), {.causal = true, .scale = 3});
       }},
  };
  const Tensor images = random_images({6, 5, 3});
  for (const auto& [type, function] : functions) {
    SCOPED_TRACE(type);
    Function network(function);
    const OnnxFile file = read_onnx(io::encode_onnx(network, {6, 5, 3}));
    EXPECT_TRUE(std::any_of(file.nodes.begin(), file.nodes.end(),
                            [type = type](const OnnxNode& node) { return node.type == type; }));
    expect_equal(network, file, images, images, kWithRoundedConstants);
  }
}

TEST(Onnx, TheAdaptivePoolingOfVgg) {
  // The features of VGG-11 are 3x2 pixels here; the linear layers, 128 million parameters, are left out.
  const models::Model model = models::vgg11({.input = {96, 64, 3}, .classes = 2});
  std::vector<nn::Layer> layers;
  for (nn::Module* const module : model.root().modules())
    if (module->path() == "features" || module->path() == "avgpool")
      layers.emplace_back(std::string(), std::shared_ptr<nn::Module>(std::shared_ptr<void>(), module));
  ASSERT_EQ(layers.size(), 2u);
  Function network([layers](const Variable& x) { return (*layers[1].module)((*layers[0].module)(x)); });
  const OnnxFile file = read_onnx(io::encode_onnx(network, {96, 64, 3}));
  for (const nn::Layer& layer : layers) layer.module->to(DType::f64);
  const Tensor images = random_images({96, 64, 3}, 1);
  expect_equal(network, file, images, images, kWithRoundedConstants);
}

TEST(Onnx, WritesAFile) {
  const models::Model model = models::lenet({.input = {20, 16, 3}, .classes = 4});
  const TempDirectory directory;
  to_onnx(model, directory.path() / "net.onnx", {20, 16, 3});
  std::ifstream file(directory.path() / "net.onnx", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), io::encode_onnx(model, {20, 16, 3}));
}

TEST(Onnx, RefusesWhatItCannotExport) {
  EXPECT_EQ(
      refusal([](const Variable& x) {
        return adaptive_avg_pool2d(x, {3, 2});
      }),
      "onnx: operation 'adaptive_avg_pool2d': found windows of several sizes, from 4x4 to 3x2 pixels, which "
      "cannot be exported");
  EXPECT_THAT(refusal([](const Variable& x) {
                return pad(x, {{1, 0}, {}, {}, {}});
              }),
              HasSubstr("a change of the batch axis"));
  EXPECT_EQ(refusal([](const Variable& x) { return group_norm(x, 1); }),
            "onnx: operation 'group_norm': found an unknown operation, which cannot be exported");
  EXPECT_THAT(refusal([](const Variable& x) { return softplus(x, 1, 10); }),
              HasSubstr("'softplus': found a threshold below 20"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return permute(x, {1, 0, 2, 3});
              }),
              HasSubstr("operation 'permute': found a change of the batch axis"));
  EXPECT_THAT(refusal([](const Variable& x) { return slice(x, 0, 0, 1); }),
              HasSubstr("a change of the batch axis"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return concat({x, x}, 0);
              }),
              HasSubstr("a change of the batch axis"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return sum(x, {0, 1});
              }),
              HasSubstr("a change of the batch axis"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return reshape(x, Shape{48, x.shape()[0]});
              }),
              HasSubstr("operation 'reshape': found a reshape of [97, 4, 4, 3] to [48, 97]"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return x + Variable(Tensor::zeros({x.shape()[0], 4, 4, 3}, DType::f32, Device::cpu()));
              }),
              HasSubstr("operation 'add': found a constant [97, 4, 4, 3] of the size of the batch"));
  EXPECT_THAT(refusal([](const Variable& x) {
                return x + Variable(Tensor::empty({4, 4, 3}, DType::f32, x.context()));
              }),
              HasSubstr("operation 'add': found a constant [4, 4, 3]"));
  nn::Conv2d conv(3, 1, {.kernel = 1});
  Function uses([&](const Variable& x) { return conv(x) + x * conv.parameters()[0].variable; });
  EXPECT_THAT(message_of<UsageError>([&] {
                io::encode_onnx(uses, {4, 4, 3});
              }),
              HasSubstr("found a filter in another place than of a layer"));
  EXPECT_THAT(refusal([](const Variable& x) { return x; }), HasSubstr("a network without operations"));
  EXPECT_THAT(refusal([](const Variable& x) { return x * 2; }, {4, 4}), HasSubstr("expected [H, W, C]"));
  Function network([](const Variable& x) { return x * 2; });
  EXPECT_THAT(
      message_of<UsageError>([&] {
        io::encode_onnx(network, {4, 4, 3}, {.name = "", .mean = {1}, .inverse_std = {1}, .metadata = {}});
      }),
      HasSubstr("found 1 means and 1 standard deviations, expected one per channel"));
}

}  // namespace
}  // namespace convoy::testing
