// Hooks of modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "tests/engine/values.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using testing::values_of;
using Inputs = std::span<const Variable>;
using Outputs = std::span<Variable>;

// A layer whose kernel computes relu(2 x).
class Doubling : public nn::Module {
 public:
  int fused_calls = 0;
  bool fuses(const nn::Epilogue& epilogue) const override {
    return epilogue.is_at_most(FusedActivation::relu);
  }
  std::string describe() const override { return "Doubling"; }

 private:
  Variable forward_with(const Variable& x, const nn::ForwardContext&, const nn::Epilogue& epilogue) override {
    if (!epilogue.is_empty()) ++fused_calls;
    return epilogue.apply(2 * x);
  }
};

Variable row(const std::vector<float>& values, bool requires_grad = false) {
  return Variable(Tensor::from(values, {1, static_cast<std::int64_t>(values.size())}, Device::cpu()),
                  requires_grad);
}

TEST(ForwardHook, SeesWhatAModuleAloneComputes) {
  const auto layer = std::make_shared<Doubling>();
  const auto relu = std::make_shared<nn::Activation>(nn::ActivationKind::relu);
  nn::Sequential net({{"double", layer}, {"relu", relu}});
  std::vector<std::vector<float>> seen;
  const auto see = [&](const nn::Module&, Inputs, Outputs outputs) { seen.push_back(values_of(outputs[0])); };
  const Variable x = row({-1, 0, 3});
  {
    const nn::HookHandle of_layer = layer->add_forward_hook(see);
    EXPECT_THAT(values_of(net(x)), ElementsAre(0, 0, 6));
    const nn::HookHandle of_relu = relu->add_forward_hook(see);
    EXPECT_THAT(values_of(net(x)), ElementsAre(0, 0, 6));
    EXPECT_THAT(seen, ElementsAre(ElementsAre(-2, 0, 6), ElementsAre(-2, 0, 6), ElementsAre(0, 0, 6)));
    EXPECT_EQ(layer->fused_calls, 0);
  }
  net(x);  // the handles are destroyed, and the hooks removed
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(layer->fused_calls, 1);
}

TEST(ForwardHook, RunsBeforeTheResidualIsAdded) {
  const auto norm = std::make_shared<nn::BatchNorm2d>(3);
  nn::ResidualBlock block({{"norm", norm}}, nullptr);
  block.initialize(1);
  const Variable x(Tensor::full({1, 2, 2, 3}, 2, DType::f32, Device::cpu()));
  const std::vector<float> expected = values_of(block(x));
  float seen = 0;
  const nn::HookHandle hook = norm->add_forward_hook(
      [&](const nn::Module&, Inputs, Outputs outputs) { seen = values_of(outputs[0])[0]; });
  EXPECT_EQ(values_of(block(x)), expected);
  EXPECT_NEAR(seen, 2, 1e-4);
  EXPECT_NEAR(expected[0], 4, 1e-4);
}

TEST(ForwardHook, MayReplaceTheOutput) {
  nn::Sequential net({{"double", std::make_shared<Doubling>()}});
  const auto hook = net.add_forward_hook([&](const nn::Module& module, Inputs inputs, Outputs outputs) {
    EXPECT_EQ(module.describe(), "Sequential of 1");
    EXPECT_THAT(values_of(inputs[0]), ElementsAre(1, 2));
    outputs[0] = 3 * outputs[0];
  });
  const Variable x = row({1, 2}, true);
  const Variable y = net(x);
  EXPECT_THAT(values_of(y), ElementsAre(6, 12));
  backward(sum(5 * y + y, {0, 1}));
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(36, 36));
}

TEST(ForwardHook, IsRemovedByItsHandleWhichMayOutliveTheModule) {
  int calls = 0;
  const auto count = [&](const nn::Module&, Inputs, Outputs) { ++calls; };
  const Variable x = row({1, 2});
  nn::HookHandle handle;
  {
    Doubling layer;
    handle = layer.add_forward_hook(count);
    nn::HookHandle moved = std::move(handle);
    layer(x);
    EXPECT_EQ(calls, 1);
    moved.remove();
    moved.remove();
    EXPECT_FALSE(layer.has_forward_hooks());
    layer(x);
    EXPECT_EQ(calls, 1);
    nn::HookHandle own;
    own = layer.add_forward_hook([&](const nn::Module&, Inputs, Outputs) { own.remove(); });
    layer(x);
    EXPECT_FALSE(layer.has_forward_hooks());
    handle = layer.add_forward_hook(count);
  }
  handle.remove();
}

TEST(ForwardHook, RunsForListsOfInputs) {
  Doubling layer;
  std::size_t inputs_seen = 0;
  const auto hook = layer.add_forward_hook([&](const nn::Module&, Inputs inputs, Outputs outputs) {
    inputs_seen = inputs.size();
    outputs[0] = -outputs[0];
  });
  EXPECT_THAT(values_of(layer(nn::Variables{row({1, 2})}).front()), ElementsAre(-2, -4));
  EXPECT_EQ(inputs_seen, 1u);
}

}  // namespace
}  // namespace convoy
