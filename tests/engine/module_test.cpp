#include "convoy/engine/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

std::shared_ptr<nn::Sequential> small_net() {
  return std::make_shared<nn::Sequential>(std::vector<nn::Layer>{
      {"conv",
       std::make_shared<nn::Conv2d>(3, 8, nn::Conv2dLayerOptions{.kernel = 3, .padding = 1, .bias = false})},
      {"bn", std::make_shared<nn::BatchNorm2d>(8)},
      {"relu", std::make_shared<nn::Activation>(nn::ActivationKind::relu)},
      {"pool", std::make_shared<nn::MaxPool2d>(Pool2dOptions{})},
      {"flatten", std::make_shared<nn::Flatten>()},
      {"fc", std::make_shared<nn::Linear>(8 * 4 * 4, 10)}});
}

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

// The kinds have the order of the ops with a layer in unary_ops().
TEST(Activation, ComputesTheOpOfItsName) {
  const Variable x(testing::drawn({3, 5}, DType::f32, Device::cpu(), "x", {.bound = 6}));
  std::vector<testing::UnaryOp> ops = testing::unary_ops();
  std::erase_if(ops, [](const testing::UnaryOp& op) { return !op.has_layer; });
  for (std::size_t i = 0; i < ops.size(); ++i) {
    nn::Activation layer(static_cast<nn::ActivationKind>(i));
    std::string name = layer.describe();
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_EQ(name, ops[i].name);
    EXPECT_EQ(layer(x).value().to_vector<float>(), ops[i].op(x).value().to_vector<float>()) << name;
  }
}

TEST(Module, NamesParametersAndBuffersByPath) {
  const auto net = small_net();
  EXPECT_THAT(names_of(net->parameters()),
              ElementsAre("conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias"));
  EXPECT_THAT(names_of(net->buffers()), ElementsAre("bn.running_mean", "bn.running_var"));
}

TEST(Module, InfersEveryLayersShape) {
  std::vector<nn::LayerSummary> rows;
  EXPECT_EQ(small_net()->infer({1, 8, 8, 3}, &rows).shape(), (Shape{1, 10}));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].name, "conv");
  EXPECT_EQ(rows[0].outputs.front(), (Shape{1, 8, 8, 8}));
  EXPECT_EQ(rows[0].parameters, 8 * 3 * 9);
  EXPECT_EQ(rows[0].flops, 2 * 8 * 8 * 8 * 9 * 3);
  EXPECT_EQ(rows[1].name, "bn");
  EXPECT_EQ(rows[1].type, "BatchNorm2d 8 + ReLU");
  EXPECT_EQ(rows[1].flops, 3 * 8 * 8 * 8);  // a factor, a shift, and the maximum of the fused ReLU
  EXPECT_EQ(rows[2].name, "relu");
  EXPECT_EQ(rows[2].type, "ReLU, fused into bn");
  EXPECT_EQ(rows[2].outputs.front(), (Shape{1, 8, 8, 8}));
  EXPECT_EQ(rows[2].flops, 0);
  EXPECT_EQ(rows[3].outputs.front(), (Shape{1, 4, 4, 8}));
  EXPECT_EQ(rows[5].flops, 2 * 128 * 10);
}

TEST(Module, ShapeErrorNamesTheLayer) {
  const auto message = [](const Shape& input) {
    return message_of<UsageError>([&] { small_net()->infer(input); });
  };
  EXPECT_EQ(message({1, 8, 8, 1}),
            "conv (Conv2d 3 -> 8, 3x3 padding 1): input [1, 8, 8, 1] has 1 channels, expected 3");
  EXPECT_EQ(message({1, 10, 8, 3}), "fc (Linear 128 -> 10): input [1, 160], expected [N, …, 128]");
  EXPECT_THAT(message({1, 1, 8, 3}), HasSubstr("pool (MaxPool2d 2x2 stride 2): a window of 2 does not fit"));
}

TEST(Module, ShapeErrorNamesTheBlockOrTheLayerThatAdds) {
  const auto message = [](std::vector<nn::Layer> body) {
    nn::Sequential net({{"layer1", std::make_shared<nn::ResidualBlock>(std::move(body), nullptr)}});
    return message_of<UsageError>([&] { net.infer({1, 6, 6, 4}); });
  };
  const auto conv = [] { return std::make_shared<nn::Conv2d>(4, 8, nn::Conv2dLayerOptions{.padding = 1}); };
  EXPECT_EQ(message({{"conv", conv()}}),
            "layer1 (ResidualBlock of 1): the body returns shape [1, 6, 6, 8], the shortcut [1, 6, 6, 4]; "
            "expected equal shapes");
  EXPECT_EQ(message({{"conv", conv()}, {"bn", std::make_shared<nn::BatchNorm2d>(8)}}),
            "layer1.bn (BatchNorm2d 8): batch_norm: residual [1, 6, 6, 4], expected the input's shape "
            "[1, 6, 6, 8]");
}

TEST(Module, ErrorOfACallNamesTheLayerOnce) {
  nn::Sequential net({{"body", small_net()}});
  const Variable wide(Tensor::zeros({1, 8, 8, 5}, DType::f32, Device::cpu()));
  EXPECT_EQ(message_of<UsageError>([&] { net(wide); }),
            "body.conv (Conv2d 3 -> 8, 3x3 padding 1): input [1, 8, 8, 5] has 5 channels, expected 3");
  nn::Linear alone(3, 2);
  EXPECT_EQ(message_of<UsageError>([&] { alone(wide); }),
            "Linear 3 -> 2: input [1, 8, 8, 5], expected [N, …, 3]");
}

TEST(Module, InferComputesAndChangesNothing) {
  const auto net = small_net();
  net->initialize(1);
  std::vector<Variable> variables;
  for (const nn::NamedParameter& parameter : net->parameters()) variables.push_back(parameter.variable);
  const CachingAllocator& memory = DeviceContext(Device::cpu()).memory();
  const MemoryStats before = memory.stats();
  const Shape large{1 << 20, 8, 8, 3};  // 0.8 GB of images
  EXPECT_EQ(net->infer(large).shape(), (Shape{1 << 20, 10}));
  EXPECT_EQ(memory.stats().peak_in_use, before.peak_in_use);
  EXPECT_EQ(memory.stats().source_calls, before.source_calls);
  for (const nn::NamedBuffer& buffer : net->buffers())
    EXPECT_THAT(buffer.tensor.to_vector<float>(), ::testing::Each(buffer.name == "bn.running_var" ? 1 : 0));
  for (const Variable& variable : variables) EXPECT_FALSE(variable.grad().defined());
}

TEST(Module, RunsOnTheMetaDeviceInTraining) {
  const auto net = small_net();
  net->initialize(1);
  const Variable x(Tensor::empty({4, 8, 8, 3}, DType::f32, Device::meta()));
  const Variable y = (*net)(x, {.training = true});
  EXPECT_EQ(y.device(), Device::meta());
  EXPECT_EQ(y.shape(), (Shape{4, 10}));
  EXPECT_THAT(net->buffers()[1].tensor.to_vector<float>(), ::testing::Each(1)) << "a statistic changed";
  const Variable loss = cross_entropy_sum(y, Tensor::zeros({4}, DType::i32, Device::cpu()));
  EXPECT_EQ(message_of<UsageError>([&] { backward(loss); }),
            "backward: the loss is on the meta device, expected one with data");
}

TEST(Module, OpsAcceptAMetaOperandInAnyPlace) {
  const Variable meta(Tensor::empty({4, 4}, DType::f32, Device::meta()));
  const Variable data(Tensor::full({4, 4}, 1, DType::f32, Device::cpu()));
  for (const Variable& y : {meta + data, data + meta, meta * data, data * meta, matmul(meta, data),
                            matmul(data, meta), linear(data, meta, {})})
    EXPECT_EQ(y.device(), Device::meta());
  EXPECT_EQ((data + data).device(), Device::cpu());
}

TEST(Module, PathsFollowTheTree) {
  const auto net = small_net();
  EXPECT_EQ(net->path(), "");
  EXPECT_EQ(net->modules()[1]->path(), "conv");
  const nn::Sequential outer({{"a", std::make_shared<nn::Sequential>(std::vector<nn::Layer>{{"b", net}})}});
  EXPECT_EQ(net->path(), "a.b");
  EXPECT_EQ(net->modules()[1]->path(), "a.b.conv");
}

TEST(Module, RejectsChildrenThatAreNullOrThereAlready) {
  const auto error = [](std::vector<nn::Layer> layers) {
    return message_of<UsageError>([&] { nn::Sequential net(std::move(layers)); });
  };
  const auto shared = std::make_shared<nn::Linear>(3, 3);
  EXPECT_EQ(error({{"fc", nullptr}}), "child 'fc': found a null pointer, expected a module");
  EXPECT_EQ(error({{"fc", shared}, {"fc", std::make_shared<nn::Linear>(3, 3)}}),
            "child 'fc': found another child with this name, expected a new one");
  EXPECT_EQ(
      error({{"a", shared}, {"b", std::make_shared<nn::Sequential>(std::vector<nn::Layer>{{"0", shared}})}}),
      "child 'b': found Linear 3 -> 3, which is already in this model as 'a'; expected a module of its own");
}

TEST(Module, LayersRejectSizesThatTheyCannotCompute) {
  const auto conv = [](nn::Conv2dLayerOptions options) {
    return message_of<UsageError>([&] { nn::Conv2d(3, 8, options); });
  };
  const auto pool = [](Pool2dOptions options) {
    return message_of<UsageError>([&] { nn::MaxPool2d{options}; });
  };
  EXPECT_EQ(conv({.kernel = 0}), "Conv2d 3 -> 8 with kernel 0 and stride 1: expected positive numbers");
  EXPECT_EQ(conv({.stride = 0}), "Conv2d 3 -> 8 with kernel 3 and stride 0: expected positive numbers");
  EXPECT_EQ(conv({.stride = {1, -2}}),
            "Conv2d 3 -> 8 with kernel 3 and stride 1x-2: expected positive numbers");
  EXPECT_EQ(conv({.padding = -1}), "Conv2d 3 -> 8: found padding -1, expected at least 0");
  EXPECT_EQ(conv({.dilation = {2, 0}}), "Conv2d 3 -> 8: found dilation 2x0, expected at least 1");
  EXPECT_EQ(conv({.stride = 2, .padding = kSamePadding}),
            "Conv2d 3 -> 8: found stride 2 with kSamePadding, expected 1");
  EXPECT_EQ(conv({.groups = 2}),
            "Conv2d 3 -> 8: found 2 groups, expected a divisor of both numbers of channels");
  EXPECT_THROW(nn::Conv2d(0, 8, {}), UsageError);
  EXPECT_THROW(nn::Linear(3, -1), UsageError);
  EXPECT_THROW(nn::BatchNorm2d(0), UsageError);
  EXPECT_EQ(pool({.kernel = -2}), "MaxPool2d with kernel -2 and stride 2: expected positive numbers");
  EXPECT_EQ(pool({.kernel = 3, .stride = 0}),
            "MaxPool2d with kernel 3 and stride 0: expected positive numbers");
  EXPECT_EQ(pool({.kernel = 3, .padding = 2}),
            "MaxPool2d with kernel 3: found padding 2, expected 0 to 1, which is half of the kernel");
  EXPECT_EQ(pool({.kernel = {3, 5}, .padding = {1, 3}}),
            "MaxPool2d with kernel 3x5: found padding 1x3, expected 0 to 1x2, which is half of the kernel");
  EXPECT_THROW(nn::AvgPool2d({.kernel = 2, .padding = -1}), UsageError);
  EXPECT_EQ(message_of<UsageError>([] {
              nn::AdaptiveMaxPool2d({0, 2});
            }),
            "AdaptiveMaxPool2d: found the size 0x2, expected at least 1");
  EXPECT_THROW(nn::AdaptiveAvgPool2d(-1), UsageError);
  EXPECT_EQ(message_of<UsageError>([] { nn::Dropout(1); }), "Dropout: found p = 1, expected 0 <= p < 1");
  EXPECT_THROW(nn::Dropout(-0.1), UsageError);
  EXPECT_THROW(nn::Dropout(NAN), UsageError);
}

TEST(Module, ForwardReturnsTheInferredShape) {
  const auto net = small_net();
  net->initialize(1);
  const Variable images(Tensor::full({2, 8, 8, 3}, 0.5, DType::f32, Device::cpu()));
  EXPECT_EQ((*net)(images).shape(), (Shape{2, 10}));
}

// A fused epilogue gives the same bits as the layer followed by the epilogue.
TEST(Module, FusedEpilogueEqualsSeparateOperations) {
  const auto with = [](std::vector<nn::Layer> layers) {
    return std::make_shared<nn::Sequential>(std::move(layers));
  };
  const auto relu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
  const auto gelu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::gelu); };
  const auto norm = [](bool own_relu) {
    return std::make_shared<nn::BatchNorm2d>(
        5, BatchNormOptions{.activation = own_relu ? FusedActivation::relu : FusedActivation::none});
  };
  const std::shared_ptr<nn::Module> images[] = {
      norm(false),
      norm(true),
      std::make_shared<nn::Conv2d>(5, 5, nn::Conv2dLayerOptions{.padding = 1}),
      std::make_shared<nn::Conv2d>(5, 5, nn::Conv2dLayerOptions{.padding = 1, .bias = false}),
      relu(),
      with({}),
      with({{"0", norm(false)}}),
      with({{"0", norm(false)}, {"1", relu()}}),
      with({{"0", norm(false)}, {"1", gelu()}}),
      with({{"0", norm(true)}, {"1", gelu()}}),
      with({{"0", relu()}, {"1", relu()}, {"2", norm(true)}}),
      std::make_shared<nn::ResidualBlock>(std::vector<nn::Layer>{{"0", norm(false)}}, nullptr)};
  const std::shared_ptr<nn::Module> rows[] = {std::make_shared<nn::Linear>(5, 5),
                                              std::make_shared<nn::Linear>(5, 5, false)};
  const auto compare = [](nn::Module& module, const Shape& shape) {
    module.initialize(3);
    std::vector<float> values[2];
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values[0].push_back(static_cast<float>(i * 7919 % 101 - 50) / 32);
      values[1].push_back(static_cast<float>(i * 7907 % 103 - 51) / 32);
    }
    const Variable x(Tensor::from(values[0], shape, Device::cpu()));
    const Variable residual(Tensor::from(values[1], shape, Device::cpu()));
    for (const auto activation : {FusedActivation::none, FusedActivation::relu, FusedActivation::gelu})
      for (const Variable& sum : {Variable(), residual}) {
        if (activation == FusedActivation::gelu && sum.defined()) continue;  // no layer fuses both
        SCOPED_TRACE(fmt::format("{}, residual {}, activation {}", module.describe(), sum.defined(),
                                 static_cast<int>(activation)));
        const nn::Epilogue epilogue{.residual = sum, .activation = activation};
        const nn::ForwardContext context{.training = true};
        EXPECT_EQ(module(x, context, epilogue).value().to_vector<float>(),
                  epilogue.apply(module(x, context)).value().to_vector<float>());
      }
  };
  for (const auto& module : images) compare(*module, {3, 2, 2, 5});
  for (const auto& module : rows) compare(*module, {6, 5});
}

nn::Sequential net_of_two_layers() {
  return nn::Sequential({{"norm", nn::BatchNorm2d(2)}, {"conv", nn::Conv2d(2, 3, {.bias = false})}});
}

std::vector<float> filter_of(nn::Module& net) {
  return net.parameters().back().variable.value().to_vector<float>();
}

TEST(Module, HasTheInitialValuesOfTheDefaultSeedBeforeItsFirstUse) {
  const Variable x(Tensor::full({1, 4, 4, 2}, 1, DType::f32, Device::cpu()));
  nn::Sequential expected = net_of_two_layers(), called = net_of_two_layers(), moved = net_of_two_layers(),
                 asked = net_of_two_layers(), half = net_of_two_layers();
  expected.initialize(nn::Module::kInitialSeed);
  const std::vector<float> y = expected(x).value().to_vector<float>();
  EXPECT_EQ(called(x).value().to_vector<float>(), y);
  moved.to(DeviceContext::create_cpu({.threads = 1}));
  EXPECT_EQ(filter_of(moved), filter_of(expected));
  EXPECT_EQ(filter_of(asked), filter_of(expected));
  half.keep_low_precision_copies(DType::bf16);
  EXPECT_EQ(half.parameters().back().variable.low_precision_copy().to(DType::f32).to_vector<float>(),
            expected.parameters().back().variable.value().to(DType::bf16).to(DType::f32).to_vector<float>());
  // A module that is called alone, by its path in the network; shapes need no values.
  nn::Sequential parts = net_of_two_layers();
  EXPECT_EQ(parts.infer({1, 4, 4, 2}).shape(), (Shape{1, 2, 2, 3}));
  (*parts.modules().back())(x);
  EXPECT_EQ(filter_of(parts), filter_of(expected));
  expected.initialize(2);
  EXPECT_NE(filter_of(expected), filter_of(called));
}

TEST(Module, KeepsTheValuesThatWereSetBeforeItsFirstUse) {
  // As a user's constructor does, which holds the Variable that add_parameter() returned.
  class Ramp final : public nn::Module {
   public:
    Ramp() : drawn_(add_parameter("drawn", {2}, nn::ParameterKind::weight, Init::uniform(1))) {
      const Variable set = add_parameter("set", {2}, nn::ParameterKind::weight, Init::uniform(1));
      set.value().copy_from(Tensor::from(std::vector<float>{0, 5}, {2}, Device::cpu()));
      constant_ = add_parameter("constant", {2}, nn::ParameterKind::weight, Init::constant(3));
      EXPECT_THAT(constant_.value().to_vector<float>(), ElementsAre(3, 3));
    }

   private:
    Variable forward(const Variable& x, const nn::ForwardContext&) override { return x * drawn_ + constant_; }
    Variable drawn_, constant_;
  };
  Ramp net;
  const std::vector<nn::NamedParameter> parameters = net.parameters();
  EXPECT_NE(parameters[0].variable.value().to_vector<float>()[0], 0);
  EXPECT_THAT(parameters[1].variable.value().to_vector<float>(), ElementsAre(0, 5));
  EXPECT_THAT(parameters[2].variable.value().to_vector<float>(), ElementsAre(3, 3));
}

TEST(Sequential, HasLayersByValueAndNumbersThem) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 8, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                                      nn::Flatten(), std::make_shared<nn::Linear>(32, 4));
  EXPECT_THAT(names_of(net.parameters()), ElementsAre("0.weight", "0.bias", "4.weight", "4.bias"));
  const Tensor images = Tensor::full({2, 4, 4, 3}, 1, DType::f32, Device::cpu());
  const nn::Layer layer("net", std::move(net));
  EXPECT_EQ((*layer.module)(images).shape(), (Shape{2, 4}));
  EXPECT_EQ((*layer.module)(images, {.training = true}).shape(), (Shape{2, 4}));
  EXPECT_EQ(layer(Variable(images)).value().to_vector<float>(),
            (*layer.module)(images).value().to_vector<float>());
  EXPECT_EQ(nn::AvgPool2d(3).describe(), "AvgPool2d 3x3 stride 3");
  EXPECT_EQ(nn::GELU().describe(), "GELU");
  EXPECT_EQ(message_of<UsageError>([] {
              nn::Sequential({nn::ReLU(), {"0", nn::ReLU()}});
            }),
            "child '0': found another child with this name, expected a new one");
}

TEST(Sequential, MovesWithItsHooks) {
  nn::Sequential net = nn::sequential(nn::Linear(2, 2));
  int calls = 0;
  const nn::HookHandle handle = net.add_forward_hook(
      [&](const nn::Module&, std::span<const Variable>, std::span<Variable>) { ++calls; });
  nn::Sequential moved = std::move(net);
  moved(Tensor::full({1, 2}, 1, DType::f32, Device::cpu()));
  EXPECT_EQ(calls, 1);
}

TEST(Module, WindowsDescribeThemselves) {
  EXPECT_EQ(nn::Conv2d(3, 8, {.kernel = {3, 1}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}})
                .describe(),
            "Conv2d 3 -> 8, 3x1 stride 1x2 padding 1x0 dilation 2x1");
  EXPECT_EQ(nn::Conv2d(4, 8, {.padding = kSamePadding, .groups = 2, .padding_mode = PaddingMode::circular})
                .describe(),
            "Conv2d 4 -> 8, 3x3 padding same circular groups 2");
  EXPECT_EQ(nn::AvgPool2d({.kernel = {2, 3}, .ceil_mode = true, .count_include_pad = false}).describe(),
            "AvgPool2d 2x3 stride 2 ceil mode padding not counted");
  EXPECT_EQ(nn::MaxPool2d(Size2d(2, 3)).describe(), "MaxPool2d 2x3 stride 2x3");
  EXPECT_EQ(nn::AdaptiveAvgPool2d(7).describe(), "AdaptiveAvgPool2d 7x7");
}

// The layers compute every size that their constructors accept: f32, which uses libraries, is compared with
// f64, which uses plain loops.
TEST(Module, ConvolutionsComputeEvenKernelsAndWidePadding) {
  for (const nn::Conv2dLayerOptions& options :
       {nn::Conv2dLayerOptions{.kernel = 2}, nn::Conv2dLayerOptions{.kernel = 2, .stride = 3, .padding = 1},
        nn::Conv2dLayerOptions{.kernel = 4, .stride = 2, .padding = 1},
        nn::Conv2dLayerOptions{.kernel = 1, .padding = 2},
        nn::Conv2dLayerOptions{.kernel = {2, 3}, .stride = {1, 2}, .padding = {0, 4}, .dilation = {3, 2}},
        nn::Conv2dLayerOptions{.kernel = {2, 4}, .padding = kSamePadding, .dilation = {1, 2}},
        nn::Conv2dLayerOptions{.kernel = 2, .padding = kSamePadding, .padding_mode = PaddingMode::reflect},
        nn::Conv2dLayerOptions{.kernel = 3, .stride = 2, .padding = 5}}) {
    nn::Conv2d conv(3, 4, options);
    SCOPED_TRACE(conv.describe());
    conv.initialize(1);
    const auto output_and_gradients = [&](DType dtype) {
      conv.to(dtype);
      const Shape shape{2, 7, 6, 3};
      std::vector<double> values;
      for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i % 17) / 8 - 1);
      const Variable x(Tensor::from(values, shape, Device::cpu()).to(dtype), true);
      const Variable y = conv(x);
      EXPECT_EQ(conv.infer(shape).shape(), y.shape());
      backward(sum(y * y));
      std::vector<double> all;
      for (const Tensor& tensor : {y.value(), x.grad(), conv.parameters()[0].variable.grad()})
        for (const double value : tensor.to(DType::f64).to_vector<double>()) all.push_back(value);
      return all;
    };
    const std::vector<double> expected = output_and_gradients(DType::f64);
    const std::vector<double> found = output_and_gradients(DType::f32);
    // Values are about 1. y sums at most 48 products, and dw at most 264 products of x and y.
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 264 * 48 * std::numeric_limits<float>::epsilon()) << i;
  }
}

TEST(Module, ConvTranspose2dHasTheSizeAndInitialValuesOfPyTorch) {
  nn::ConvTranspose2d layer(32, 16, {.kernel = 4, .stride = 2, .padding = 1});
  EXPECT_EQ(layer.describe(), "ConvTranspose2d 32 -> 16, 4x4 stride 2 padding 1");
  EXPECT_EQ(layer.infer({2, 5, 7, 32}).shape(), (Shape{2, 10, 14, 16}));
  layer.initialize(3);
  const std::vector<nn::NamedParameter> parameters = layer.parameters();
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_EQ(parameters[0].variable.shape(), (Shape{32, 4, 4, 16}));
  EXPECT_EQ(parameters[1].name, "bias");
  EXPECT_EQ(parameters[1].variable.shape(), (Shape{16}));
  const double bound = 1 / std::sqrt(16.0 * 16);  // PyTorch's fan-in is out * kernel^2
  double largest = 0;
  for (const double w : parameters[0].variable.value().to_vector<float>())
    largest = std::max(largest, std::abs(w));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
}

TEST(Module, ConvTranspose2dRejectsInvalidOptions) {
  const auto layer = [](nn::ConvTranspose2dLayerOptions options) {
    return message_of<UsageError>([&] { nn::ConvTranspose2d(3, 8, options); });
  };
  EXPECT_EQ(layer({.kernel = 0}),
            "ConvTranspose2d 3 -> 8 with kernel 0 and stride 1: expected positive numbers");
  EXPECT_EQ(layer({.padding = -1}), "ConvTranspose2d 3 -> 8: found padding -1, expected at least 0");
  EXPECT_EQ(layer({.stride = 2, .output_padding = 2}),
            "ConvTranspose2d 3 -> 8: found output padding 2, expected 0 to 1, which is less than the stride");
  EXPECT_EQ(layer({.groups = 0}),
            "ConvTranspose2d 3 -> 8: found 0 groups, expected a divisor of both numbers of channels");
}

TEST(Module, DepthwiseConv2dHasOneFilterForEachChannel) {
  nn::Conv2d layer(16, 32, {.padding = 1, .groups = 16, .bias = false});
  EXPECT_EQ(layer.describe(), "Conv2d 16 -> 32, 3x3 padding 1 groups 16");
  layer.initialize(1);
  const std::vector<nn::NamedParameter> parameters = layer.parameters();
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].variable.shape(), (Shape{32, 3, 3, 1}));
  // Only channel 1 of the input differs from zero, which filters 2 and 3 alone see.
  std::vector<float> values(std::size_t{5} * 5 * 16, 0.0f);
  for (std::size_t i = 1; i < values.size(); i += 16) values[i] = 1;
  const Variable x(Tensor::from(values, {1, 5, 5, 16}, Device::cpu()));
  const std::vector<float> y = layer(x, {}).value().to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] != 0, i % 32 == 2 || i % 32 == 3) << i;
}

TEST(Module, ConvertsToDoubleAndBackWithTheSameVariables) {
  const auto net = small_net();
  net->initialize(1);
  const std::vector<nn::NamedParameter> before = net->parameters();
  const auto values = before[0].variable.value().to_vector<float>();
  net->to(DType::f64);
  EXPECT_EQ(before[0].variable.value().dtype(), DType::f64);
  EXPECT_EQ(net->buffers()[0].tensor.dtype(), DType::f64);
  net->to(DType::f32);
  EXPECT_EQ(before[0].variable.value().to_vector<float>(), values);
  const DeviceContext other = DeviceContext::create_cpu({.threads = 1});
  net->to(other);
  EXPECT_TRUE(before[0].variable.context() == other);
  EXPECT_THROW(net->to(DType::i32), UsageError);
}

TEST(Module, DropoutActsOnlyInTrainingAndVariesByEpoch) {
  nn::Dropout dropout(0.5);
  const DeviceContext device = Device::cpu();
  const Variable x(Tensor::full({4, 64}, 1, DType::f32, device));
  EXPECT_EQ(dropout(x), x);
  nn::ForwardContext context{.training = true,
                             .seed = 1,
                             .epoch = 0,
                             .sample_ids = Tensor::from(std::vector<std::int32_t>{5, 6, 7, 8}, {4}, device)};
  const auto first = dropout(x, context).value().to_vector<float>();
  EXPECT_EQ(dropout(x, context).value().to_vector<float>(), first);
  context.epoch = 1;
  EXPECT_NE(dropout(x, context).value().to_vector<float>(), first);
}

TEST(Module, DropoutsOfAModelDifferAndThoseOfEqualModelsDoNot) {
  const auto masks = [](const std::string& first, const std::string& second) {
    const auto a = std::make_shared<nn::Dropout>(0.5), b = std::make_shared<nn::Dropout>(0.5);
    const nn::Sequential net({{first, a}, {second, b}});
    const DeviceContext device = Device::cpu();
    const Variable x(Tensor::full({1, 256}, 1, DType::f32, device));
    const nn::ForwardContext context{.training = true,
                                     .sample_ids = Tensor::from(std::vector<std::int32_t>{7}, {1}, device)};
    return std::pair((*a)(x, context).value().to_vector<float>(),
                     (*b)(x, context).value().to_vector<float>());
  };
  const auto [a, b] = masks("drop1", "drop2");
  EXPECT_NE(a, b);
  // Half of the elements agree, with a standard deviation of sqrt(256) / 2 = 8.
  int equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  EXPECT_NEAR(equal, 128, 4 * 8);
  EXPECT_EQ(masks("drop1", "drop2"), std::pair(a, b));
  EXPECT_EQ(masks("other", "drop1").second, a) << "the path is the key, not the position";
}

TEST(Module, DropoutReadsTheEpochFromDeviceMemory) {
  nn::Dropout dropout(0.5);
  const DeviceContext device = Device::cpu();
  nn::ForwardContext context{.training = true,
                             .seed = 1,
                             .epoch = 9,
                             .sample_ids = Tensor::from(std::vector<std::int32_t>{5, 6, 7, 8}, {4}, device)};
  const auto output_and_gradient = [&] {
    const Variable x(Tensor::full({4, 64}, 1, DType::f32, device), true);
    const Variable y = dropout(x, context);
    context.device_epoch = {};  // the operation keeps its own reference for backward
    backward(sum(y));
    return std::pair(y.value().to_vector<float>(), x.grad().to_vector<float>());
  };
  const auto expected = output_and_gradient();
  context.epoch = 0;
  EXPECT_NE(output_and_gradient(), expected);
  context.device_epoch = Tensor::full({1}, 9, DType::i32, device);
  EXPECT_EQ(output_and_gradient(), expected);
  context.device_epoch = Tensor::full({1}, 9, DType::f32, device);
  EXPECT_THROW(output_and_gradient(), UsageError);
}

}  // namespace
}  // namespace convoy
