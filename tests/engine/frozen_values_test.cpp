// Values of layers that are not trained: the fixed scale of batch norms, and buffers with a layout of
// filters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

struct Results {
  std::vector<double> y, dx, dbeta, running;
};

// Runs a batch norm forward and, in training, backward.
Results run(nn::BatchNorm2d& norm, const Variable& x, bool training, const nn::Epilogue& epilogue) {
  const auto values = [](const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); };
  const Variable y = norm(x, {.training = training}, epilogue);
  backward(sum(y * y * y));
  Results results{.y = values(y.value()), .dx = values(x.grad()), .dbeta = {}, .running = {}};
  for (const nn::NamedParameter& parameter : norm.parameters())
    if (parameter.name == "bias") results.dbeta = values(parameter.variable.grad());
  for (const Tensor& tensor : {norm.running().running_mean, norm.running().running_var})
    for (const double value : values(tensor)) results.running.push_back(value);
  return results;
}

TEST(FixedScale, HasTheBitsOfAScaleOfOne) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool training : {true, false})
      for (const bool relu : {true, false})
        for (const bool residual : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} training {} relu {} residual {}", to_string(dtype), training, relu, residual));
          Results results[2];
          for (const bool train_scale : {true, false}) {
            nn::BatchNorm2d norm(5, {.epsilon = 1e-12, .momentum = 0.4}, train_scale);
            norm.to(dtype);
            norm.initialize(1);
            for (const nn::NamedParameter& parameter : norm.parameters())
              if (parameter.name == "bias")
                parameter.variable.value().copy_from(testing::drawn({5}, dtype, Device::cpu(), "beta"));
            const Variable x(testing::drawn({3, 4, 4, 5}, dtype, Device::cpu(), "x"), true);
            const Variable other(testing::drawn({3, 4, 4, 5}, dtype, Device::cpu(), "residual"));
            results[train_scale ? 1 : 0] =
                run(norm, x, training,
                    {.residual = residual ? other : Variable(),
                     .activation = relu ? FusedActivation::relu : FusedActivation::none});
          }
          EXPECT_EQ(results[0].y, results[1].y);
          EXPECT_EQ(results[0].dx, results[1].dx);
          EXPECT_EQ(results[0].dbeta, results[1].dbeta);
          EXPECT_EQ(results[0].running, results[1].running);
        }
}

TEST(FixedScale, IsABuffer) {
  nn::BatchNorm2d norm(3, {}, /*train_scale=*/false);
  norm.initialize(1);
  ASSERT_EQ(norm.parameters().size(), 1u);
  EXPECT_EQ(norm.parameters()[0].name, "bias");
  std::vector<std::string> names;
  for (const nn::NamedBuffer& buffer : norm.buffers()) names.push_back(buffer.name);
  EXPECT_THAT(names, ElementsAre("weight", "running_mean", "running_var"));
  EXPECT_THAT(norm.buffers()[0].tensor.to_vector<float>(), ElementsAre(1, 1, 1));
  EXPECT_EQ(norm.describe(), "BatchNorm2d 3, scale 1");
}

// A convolution with fixed filters.
class FixedFilter final : public nn::Module {
 public:
  FixedFilter() : filter_(add_buffer("filter", {2, 2, 2, 3}, Init::uniform(1), nn::ParameterKind::filter)) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext&) override {
    return conv2d(x, nn::for_input(Variable(*filter_), x), {});
  }
  std::shared_ptr<Tensor> filter_;
};

TEST(FilterBuffer, IsInitializedAndStoredLikeAFilter) {
  FixedFilter layer, other;
  for (const float value : layer.buffers()[0].tensor.to_vector<float>()) EXPECT_EQ(value, 0);
  layer.initialize(1);
  other.initialize(2);
  const std::vector<float> values = layer.buffers()[0].tensor.to_vector<float>();
  EXPECT_NE(values, other.buffers()[0].tensor.to_vector<float>());
  const std::vector<io::NamedTensor> stored = io::state_dict(layer);
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].tensor.shape(), (Shape{2, 3, 2, 2}));  // [O, I, kH, kW]
  EXPECT_EQ(stored[0].tensor.to_vector<float>()[1], values[3]);
  io::load_state_dict(other, stored, "test");
  EXPECT_EQ(other.buffers()[0].tensor.to_vector<float>(), values);
}

TEST(FilterBuffer, HasNoGradient) {
  FixedFilter layer;
  layer.initialize(1);
  const Variable x(testing::drawn({1, 3, 3, 3}, DType::f32, Device::cpu(), "x"), true);
  backward(sum(layer(x)));
  EXPECT_TRUE(x.grad().defined());
  const Variable fixed(x.value());
  EXPECT_FALSE(layer(fixed).requires_grad());
}

TEST(Dirac, CopiesChannels) {
  nn::Conv2d layer(2, 3, {.kernel = 3, .padding = 1, .bias = false, .dirac = true});
  layer.initialize(1);
  const Tensor x = testing::drawn({1, 4, 4, 2}, DType::f32, Device::cpu(), "x");
  const std::vector<float> in = x.to_vector<float>(), out = layer(Variable(x)).value().to_vector<float>();
  for (std::size_t pixel = 0; pixel < 16; ++pixel)
    for (std::size_t channel = 0; channel < 2; ++channel)
      EXPECT_EQ(out[3 * pixel + channel], in[2 * pixel + channel]);
  EXPECT_EQ(message_of<UsageError>([] { nn::Conv2d(4, 4, {.groups = 2, .dirac = true}); }),
            "Conv2d 4 -> 4: found dirac with 2 groups, expected 1 group");
}

}  // namespace
}  // namespace convoy
