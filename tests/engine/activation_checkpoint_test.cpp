// Activation checkpointing: the bits of gradients, running statistics and dropout are those without it, and activations
// are not kept.
#include "convoy/engine/autograd/activation_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

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

Variable leaf(const std::vector<double>& values) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()), true);
}
std::vector<double> grad(const Variable& x) { return x.grad().to_vector<double>(); }

TEST(CheckpointActivations, ComputesThePartAgainInBackward) {
  const Variable x = leaf({1, 2}), w = leaf({3, 4});
  int calls = 0;
  const Variable y =
      checkpoint_activations(scale(x, 2), {.parameters = {w}, .state = {}}, [&](const Variable& z) {
        ++calls;
        return z * z * w + z;
      });
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(y.value().to_vector<double>(), ElementsAre(14, 68));
  backward(sum(y));
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(grad(x), ElementsAre(2 * (2 * 2 * 3 + 1), 2 * (2 * 4 * 4 + 1)));
  EXPECT_THAT(grad(w), ElementsAre(4, 16));
}

TEST(CheckpointActivations, AddsToGradientsFromElsewhere) {
  const Variable x = leaf({1, 2}), w = leaf({3, 4});
  int ready = 0;
  w.on_grad_ready([&] { ++ready; });
  const auto part = [&](const Variable& z) {
    return checkpoint_activations(z, {.parameters = {w}, .state = {}},
                                  [&w](const Variable& u) { return u * w; });
  };
  for (const bool accumulate : {false, true}) {
    backward(sum(part(part(x)) + w),
             {.accumulate = accumulate});  // x w^2 + w, with a part that is called twice
    const double times = accumulate ? 2 : 1;
    EXPECT_THAT(grad(w), ElementsAre(times * (2 * 3 + 1), times * (2 * 2 * 4 + 1)));
    EXPECT_THAT(grad(x), ElementsAre(times * 9, times * 16));
  }
  EXPECT_EQ(ready, 2) << "once per backward";
}

TEST(CheckpointActivations, PartsMayBeNested) {
  const Variable x = leaf({2}), w = leaf({3});
  const CheckpointedPart uses{.parameters = {w}, .state = {}};
  const auto inner = [w](const Variable& u) { return u * u * w; };
  backward(sum(checkpoint_activations(x, uses, [&](const Variable& z) {
    return checkpoint_activations(z * w, uses, inner);  // (x w)^2 w
  })));
  EXPECT_THAT(grad(x), ElementsAre(2 * 2 * 27));
  EXPECT_THAT(grad(w), ElementsAre(3 * 4 * 9));
}

TEST(CheckpointActivations, RecordsNothingWithoutGradients) {
  const Variable x(Tensor::from(std::vector<double>{1, 2}, {2}, Device::cpu()));
  int calls = 0;
  const auto part = [&](const Variable& z) {
    ++calls;
    return scale(z, 2);
  };
  EXPECT_FALSE(checkpoint_activations(x, {}, part).requires_grad());
  const NoGrad no_grad;
  EXPECT_FALSE(checkpoint_activations(leaf({1}), {}, part).requires_grad());
  EXPECT_EQ(calls, 2);
}

TEST(CheckpointActivations, RefusesALeafThatIsNotNamed) {
  const Variable x = leaf({1}), w = leaf({3});
  const Variable y = checkpoint_activations(x, {}, [w](const Variable& z) { return z * w; });
  EXPECT_THAT(message_of<UsageError>([&] { backward(sum(y)); }),
              HasSubstr("expected it among CheckpointedPart::parameters"));
}

TEST(CheckpointActivations, RefusesAPartWithoutOperations) {
  const Variable y = checkpoint_activations(leaf({1}), {}, [](const Variable& z) { return z; });
  EXPECT_THAT(message_of<UsageError>([&] { backward(sum(y)); }), HasSubstr("records no operation"));
}

/// The results of two steps of a residual block.
struct Results {
  std::vector<std::vector<float>> values;  // outputs, gradients and buffers
  std::size_t kept = 0;                    // bytes in use between forward and backward
};

Results train_block(bool checkpoints, bool with_shortcut, DType dtype) {
  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  const auto conv = [](int in) {
    return std::make_shared<nn::Conv2d>(in, 8,
                                        nn::Conv2dLayerOptions{.kernel = 3, .padding = 1, .bias = false});
  };
  const std::shared_ptr<nn::Module> shortcut = with_shortcut ? conv(4) : nullptr;
  nn::ResidualBlock block({{"conv1", conv(with_shortcut ? 4 : 8)},
                           {"bn1", std::make_shared<nn::BatchNorm2d>(8)},
                           {"relu1", std::make_shared<nn::Activation>(nn::ActivationKind::relu)},
                           {"dropout", std::make_shared<nn::Dropout>(0.3)},
                           {"conv2", conv(8)},
                           {"bn2", std::make_shared<nn::BatchNorm2d>(8)}},
                          shortcut);
  block.initialize(3);
  block.to(device);
  block.checkpoint_activations(checkpoints);
  std::vector<std::int32_t> ids(6);
  std::iota(ids.begin(), ids.end(), 10);
  const nn::ForwardContext context{.training = true, .seed = 7, .sample_ids = Tensor::from(ids, {6}, device)};
  Results results;
  const auto keep = [&](const Tensor& tensor) {
    results.values.push_back(tensor.to(DType::f32).to_vector<float>());
  };
  for (int step = 0; step < 2; ++step) {
    const Variable x(testing::drawn({6, 9, 9, with_shortcut ? 4 : 8}, dtype, device, "x"), true);
    const Variable y = block(scale(x, 1), context);
    results.kept = device.memory().stats().in_use;
    backward(sum(y * y));
    keep(y.value());
    keep(x.grad());
    for (const nn::NamedParameter& parameter : block.parameters()) keep(parameter.variable.grad());
    for (const nn::NamedBuffer& buffer : block.buffers()) keep(buffer.tensor);
  }
  return results;
}

TEST(CheckpointedBlock, HasTheSameBitsAndKeepsLess) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool with_shortcut : {false, true}) {
      const Results expected = train_block(false, with_shortcut, dtype);
      const Results found = train_block(true, with_shortcut, dtype);
      EXPECT_EQ(found.values, expected.values);
      EXPECT_LT(static_cast<double>(found.kept), 0.6 * static_cast<double>(expected.kept))
          << "not the outputs of six layers";
    }
}

}  // namespace
}  // namespace convoy
