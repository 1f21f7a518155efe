// Modules and models with several inputs and several outputs.
#include <gtest/gtest.h>

#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/model.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::message_of;

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
      std::vector<nn::NamedModule>{{"tokens", std::make_shared<nn::Embedding>(10, 4)}});
  const models::Model model("tokens", net, {nn::InputType({6}, DType::i32)});
  EXPECT_EQ(model.outputs().front(), (Shape{6, 4}));
  EXPECT_EQ(model(Tensor::zeros({2, 6}, DType::i32, Device::cpu())).shape(), (Shape{2, 6, 4}));
}

}  // namespace
}  // namespace convoy
