// Modules that a user writes: in models, in summaries, in errors, and with a fused epilogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/model.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

// A module that is a constructor and a forward function: relu(conv(x)) scaled per channel by a gate, which
// is a learned function of the mean over all pixels.
class GatedConv : public nn::Module {
 public:
  GatedConv(int in, int out)
      : conv_(add_child("conv", std::make_shared<nn::Conv2d>(in, out, nn::Conv2dLayerOptions{.padding = 1}))),
        pool_(add_child("pool", std::make_shared<nn::GlobalAvgPool2d>())),
        gate_(add_child("gate", std::make_shared<nn::Linear>(out, out))) {}

  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    const Variable features = (*conv_)(x, context, {.activation = FusedActivation::relu});
    const auto gate = sigmoid((*gate_)((*pool_)(features, context), context));  // before the second pooling
    return (*pool_)(features, context) * gate;
  }

 private:
  std::shared_ptr<nn::Module> conv_, pool_, gate_;
};

// A layer whose kernel computes relu(2 x).
class DoublingLayer : public nn::Module {
 public:
  int fused_calls = 0;

  bool fuses(const nn::Epilogue& epilogue) const override {
    return epilogue.is_at_most(FusedActivation::relu);
  }
  std::string describe() const override { return "Doubling"; }

 private:
  Variable forward_with(const Variable& x, const nn::ForwardContext&, const nn::Epilogue& epilogue) override {
    EXPECT_FALSE(epilogue.residual.defined());
    if (!epilogue.is_empty()) ++fused_calls;
    return epilogue.apply(2 * x);
  }
};

// A module with a parameter of its own and a child.
class Biased : public nn::Module {
 public:
  Biased()
      : bias_(add_parameter("bias", {2, 3}, nn::ParameterKind::bias, Init::constant(1))),
        fc_(add_child("fc", std::make_shared<nn::Linear>(4, 3))) {}
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    return bias_ + (*fc_)(x, context);  // the parameter, on the CPU, is the first operand
  }

 private:
  Variable bias_;
  std::shared_ptr<nn::Module> fc_;
};

models::Model model_of(std::vector<nn::Layer> layers) {
  return {"custom", std::make_shared<nn::Sequential>(std::move(layers)), {4, 4, 3}};
}

TEST(CustomModule, IsAConstructorAndAForwardFunction) {
  const models::Model model =
      model_of({{"gated", std::make_shared<GatedConv>(3, 8)}, {"fc", std::make_shared<nn::Linear>(8, 5)}});
  EXPECT_EQ(model.summary(), R"(layer       type                                 output     parameters  MFLOPs
input                                            [4, 4, 3]
gated.conv  Conv2d 3 -> 8, 3x3 padding 1 + ReLU  [4, 4, 8]         224    0.01
gated.pool  GlobalAvgPool2d                      [8]                      0.00
gated.gate  Linear 8 -> 8                        [8]                72    0.00
gated.pool  GlobalAvgPool2d                      [8]                      0.00
fc          Linear 8 -> 5                        [5]                45    0.00
total       custom                                                 341    0.01
)");
  const Variable logits = model(Tensor::full({2, 4, 4, 3}, 0.5, DType::f32, Device::cpu()));
  EXPECT_EQ(logits.shape(), (Shape{2, 5}));
}

TEST(CustomModule, ErrorOfItsOwnForwardHasItsPath) {
  nn::Sequential net({{"biased", std::make_shared<Biased>()}});
  EXPECT_EQ(
      message_of<UsageError>([&] {
        net.infer({7, 4});
      }),
      "biased (Module): add: found the shapes [2, 3] and [7, 3], expected sizes that are equal or 1 along "
      "each axis");
}

TEST(CustomModule, HasARowForItsOwnParameters) {
  nn::Sequential net({{"biased", std::make_shared<Biased>()}});
  std::vector<nn::LayerSummary> rows;
  EXPECT_EQ(net.infer({2, 4}, &rows).shape(), (Shape{2, 3}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "biased.fc");
  EXPECT_EQ(rows[0].parameters, 15);
  EXPECT_EQ(rows[0].flops, 2 * 2 * 4 * 3);
  EXPECT_EQ(rows[1].name, "biased");
  EXPECT_EQ(rows[1].parameters, 6);
  EXPECT_EQ(rows[1].flops, 2 * 3);  // its own addition, without those of fc
}

TEST(CustomModule, FusesAReluThatFollows) {
  const auto layer = std::make_shared<DoublingLayer>();
  const auto relu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
  nn::Sequential net({{"double", layer}, {"relu", relu()}, {"again", relu()}});
  std::vector<nn::LayerSummary> rows;
  net.infer({1, 3}, &rows);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].type, "Doubling + ReLU");
  EXPECT_EQ(rows[1].type, "ReLU, fused into double");
  EXPECT_EQ(rows[2].type, "ReLU");
  EXPECT_EQ(layer->fused_calls, 1);
  const Variable x(Tensor::from(std::vector<float>{-1, 0, 3}, {1, 3}, Device::cpu()));
  EXPECT_THAT(net(x).value().to_vector<float>(), ::testing::ElementsAre(0, 0, 6));
  EXPECT_EQ(layer->fused_calls, 2);
}

TEST(CustomModule, DoesNotReceiveAnEpilogueThatItCannotFuse) {
  const auto layer = std::make_shared<DoublingLayer>();
  nn::ResidualBlock block({{"double", layer}}, nullptr);
  std::vector<nn::LayerSummary> rows;
  block.infer({1, 3}, &rows);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].type, "Doubling");
  const Variable x(Tensor::from(std::vector<float>{-1, 0, 3}, {1, 3}, Device::cpu()));
  EXPECT_THAT(block(x).value().to_vector<float>(), ::testing::ElementsAre(0, 0, 9));
  EXPECT_THAT((*layer)(x, {}, {.residual = x}).value().to_vector<float>(), ::testing::ElementsAre(-3, 0, 9));
  EXPECT_EQ(layer->fused_calls, 0);
}

// Modules and models with several inputs and several outputs.

// Attends from x to a memory. The second output has the weights of the attention.
class Attend : public nn::Module {
 public:
  explicit Attend(int width)
      : query_(add_child("query", std::make_shared<nn::Linear>(width, width))),
        key_(add_child("key", std::make_shared<nn::Linear>(width, width))) {}
  std::string describe() const override { return "Attend"; }

 private:
  nn::Variables forward_all(const nn::Variables& inputs, const nn::ForwardContext& context) override {
    const Variable &x = inputs.at(0), &memory = inputs.at(1);
    const Variable queries = (*query_)(x, context);
    const Variable keys = (*key_)(memory, context);
    const Variable weights = softmax(matmul(queries, transpose(keys, 1, 2)));
    return {matmul(weights, memory), weights};
  }
  std::shared_ptr<nn::Module> query_, key_;
};

models::Model attend() { return {"attend", std::make_shared<Attend>(4), {Shape{3, 4}, Shape{5, 4}}}; }

Variable full(const Shape& shape, double value) {
  return Variable(Tensor::full(shape, value, DType::f32, Device::cpu()));
}

TEST(ModuleOfSeveralInputs, TakesAndReturnsLists) {
  const models::Model model = attend();
  EXPECT_EQ(model.outputs(), (std::vector<Shape>{{3, 4}, {3, 5}}));
  const nn::Variables outputs = model({full({2, 3, 4}, 0.5), full({2, 5, 4}, 0.25)});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].shape(), (Shape{2, 3, 4}));
  for (const float y : outputs[0].value().to_vector<float>()) EXPECT_FLOAT_EQ(y, 0.25);
  for (const float weight : outputs[1].value().to_vector<float>()) EXPECT_FLOAT_EQ(weight, 0.2);
}

TEST(ModuleOfSeveralInputs, HasASummary) {
  EXPECT_EQ(attend().summary(), R"(layer    type           output  parameters  MFLOPs
input 1                 [3, 4]
input 2                 [5, 4]
query    Linear 4 -> 4  [3, 4]          20    0.00
key      Linear 4 -> 4  [5, 4]          20    0.00
total    attend                         40    0.00
)");
}

TEST(ModuleOfSeveralInputs, CountsEachOperationOnce) {
  // Two linear layers, and two products of 3 x 5 x 4; the softmax is free or more.
  const std::int64_t products = 2 * (3 + 5) * 4 * 4 + 2 * 2 * 3 * 5 * 4;
  EXPECT_GE(attend().flops(), products);
  EXPECT_LT(attend().flops(), products + 10 * 3 * 5);
}

TEST(ModuleOfSeveralInputs, ThrowsForAnotherNumberOrShapeOfInputs) {
  const models::Model model = attend();
  const Variable x = full({2, 3, 4}, 1);
  EXPECT_EQ(message_of<UsageError>([&] { model(x); }), "attend: found 1 input, expected 2");
  EXPECT_EQ(message_of<UsageError>([&] { model({x, x, x}); }), "attend: found 3 inputs, expected 2");
  EXPECT_EQ(message_of<UsageError>([&] {
              model({x, x});
            }),
            "attend: found input 2 of shape [2, 3, 4], expected [N, 5, 4], for which the model was built");
  EXPECT_EQ(message_of<UsageError>([&] { model.root()(x); }),
            "Attend: found a call with one input, expected a call with a list: the module has no forward()");
  EXPECT_EQ(message_of<UsageError>([&] {
              nn::Linear(4, 4)({x, x});
            }),
            "Linear 4 -> 4: found 2 inputs, expected 1");
}

TEST(Model, ThrowsWithoutInputs) {
  EXPECT_EQ(message_of<UsageError>(
                [] { models::Model("none", std::make_shared<Attend>(4), std::vector<nn::InputType>{}); }),
            "none: found no input, expected at least one");
}

// A module whose output has no batch axis.
class Mean : public nn::Module {
  Variable forward(const Variable& x, const nn::ForwardContext&) override {
    return mean(x, std::vector<int>{0});
  }
};

TEST(Model, ThrowsIfAnOutputHasNoBatchAxis) {
  EXPECT_EQ(
      message_of<UsageError>([] { models::Model("mean", std::make_shared<Mean>(), {7}); }),
      "mean: the network returns shape [7] for one sample, expected [1, …]: the first axis is the batch");
}

TEST(Model, AcceptsAListForOneInput) {
  const models::Model model("fc", std::make_shared<nn::Linear>(3, 2), {3});
  const Variable x = full({2, 3}, 1);
  EXPECT_EQ(model(nn::Variables{x}).front().value().to_vector<float>(), model(x).value().to_vector<float>());
}

TEST(Model, HasInputsOfOtherTypes) {
  const auto net = std::make_shared<nn::Sequential>(
      std::vector<nn::Layer>{{"tokens", std::make_shared<nn::Embedding>(10, 4)}});
  const models::Model model("tokens", net, {nn::InputType({6}, DType::i32)});
  EXPECT_EQ(model.outputs().front(), (Shape{6, 4}));
  EXPECT_EQ(model(Tensor::zeros({2, 6}, DType::i32, Device::cpu())).shape(), (Shape{2, 6, 4}));
}

}  // namespace

}  // namespace convoy
