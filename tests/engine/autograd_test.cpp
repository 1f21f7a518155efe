#include "convoy/engine/autograd/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A fixture with a single-threaded CPU device.
class Autograd : public ::testing::Test {
 protected:
  Variable leaf(const std::vector<double>& values) {
    return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, device), true);
  }
  static std::vector<double> grad(const Variable& x) { return x.grad().to_vector<double>(); }

  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
};

TEST_F(Autograd, SumsOverAllPathsOfADiamond) {
  const Variable x = leaf({1, 2, 3});
  const Variable a = scale(x, 2);
  backward(sum(a * a + scale(a, 3) + x));  // 4 x^2 + 6 x + x
  EXPECT_THAT(grad(x), ElementsAre(15, 23, 31));
}

TEST_F(Autograd, DoesNotOverwriteASharedGradient) {
  // x and y share the gradient of z as one tensor. The second contribution to x must not change y's.
  const Variable p = leaf({1, 2});
  const Variable q = leaf({3, 4});
  const Variable x = scale(p, 1), y = scale(q, 1);
  const Variable x_again = scale(x, 5);
  const Variable z = x + y;
  backward(sum(z + x_again));
  EXPECT_THAT(grad(p), ElementsAre(6, 6));
  EXPECT_THAT(grad(q), ElementsAre(1, 1));
}

TEST_F(Autograd, ReplacesByDefaultAndAccumulatesOnRequest) {
  const Variable x = leaf({1});
  backward(sum(scale(x, 2)));
  backward(sum(scale(x, 3)));
  EXPECT_THAT(grad(x), ElementsAre(3));
  backward(sum(scale(x, 4)), {.accumulate = true});
  EXPECT_THAT(grad(x), ElementsAre(7));
  x.consume_grad();  // as after a step: the next contribution overwrites
  backward(sum(scale(x, 5)), {.accumulate = true});
  EXPECT_THAT(grad(x), ElementsAre(5));
}

TEST_F(Autograd, HasNewGradUntilConsumed) {
  const Variable used = leaf({1}), unused = leaf({1});
  EXPECT_FALSE(used.has_new_grad());
  backward(sum(scale(used, 2)));
  EXPECT_TRUE(used.has_new_grad());
  EXPECT_FALSE(unused.has_new_grad());
  used.consume_grad();
  EXPECT_FALSE(used.has_new_grad());
}

TEST_F(Autograd, ReleaseGradFreesMemory) {
  const Tensor bucket = Tensor::full({2}, -1, DType::f64, device);
  const Variable x = leaf({1, 2}), y = leaf({3, 4});
  y.set_grad_storage(bucket);
  backward(sum(x * y));
  const Tensor held = x.grad();
  EXPECT_THROW(x.release_grad(), UsageError) << "a step would miss the new gradient";
  for (const Variable& used : {x, y}) {
    used.consume_grad();
    EXPECT_TRUE(used.grad().defined());
    used.release_grad();
  }
  EXPECT_TRUE(held.is_only_owner());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(y.grad().view().data, bucket.view().data) << "borrowed storage is kept";
  backward(sum(scale(x, 5) + y));
  EXPECT_THAT(grad(x), ElementsAre(5, 5));
}

TEST_F(Autograd, GraphHoldsOnlySavedValues) {
  const Variable x = leaf({1, -2});
  Tensor unsaved, saved;
  Variable y;
  {
    const Variable twice = scale(x, 2), positive = relu(twice);
    unsaved = twice.value();
    saved = positive.value();
    y = sum(positive);
  }
  EXPECT_TRUE(unsaved.is_only_owner());
  EXPECT_FALSE(saved.is_only_owner()) << "relu saved it";
  backward(y);
  EXPECT_TRUE(saved.is_only_owner());
  EXPECT_THAT(grad(x), ElementsAre(2, 0));
}

TEST_F(Autograd, GraphInputsHaveTypesButNoValues) {
  const Variable x = leaf({1, 2});
  const Variable twice = scale(x, 2);
  const Variable y = scale(twice, 3);
  const Variable input = y.creator()->inputs[0];
  EXPECT_EQ(input, twice);
  EXPECT_EQ(input.shape(), Shape{2});
  EXPECT_EQ(input.dtype(), DType::f64);
  EXPECT_EQ(input.context(), device);
  EXPECT_THAT(testing::message_of<UsageError>([&] { input.value(); }), HasSubstr("no value of 'scale'"));
  EXPECT_THAT(twice.creator()->inputs[0].value().to_vector<double>(), ElementsAre(1, 2))
      << "a leaf keeps its value";
}

TEST_F(Autograd, WritesGradientsToTheirStorage) {
  const Tensor bucket = Tensor::full({5}, -1, DType::f64, device);
  const Variable x = leaf({1, 2}), y = leaf({3, 4});
  x.set_grad_storage(bucket.slice(3, {2}));
  y.set_grad_storage(bucket.slice(0, {2}));
  for (int step = 0; step < 2; ++step) {
    backward(sum(x * y));
    EXPECT_THAT(bucket.to_vector<double>(), ElementsAre(1, 2, -1, 3, 4));
    EXPECT_EQ(x.grad().view().data, bucket.slice(3, {2}).view().data);
  }
}

TEST_F(Autograd, HooksFireWhileBackwardStillRuns) {
  // A chain first -> second -> third: the last weight's gradient is complete before the first one's is
  // started.
  const Variable first = leaf({2}), second = leaf({3}), third = leaf({5});
  std::vector<std::string> order;
  const auto watch = [&](const Variable& x, const std::string& name) {
    // By reference: a hook that owned its variable would keep both alive forever.
    x.on_grad_ready([&order, &x, name] {
      EXPECT_TRUE(x.has_new_grad());
      order.push_back(name);
    });
  };
  watch(first, "first");
  watch(second, "second");
  watch(third, "third");
  const Variable probe = record("probe", Tensor::full({1}, 1, DType::f64, device), {first},
                                [&](const Tensor& dy, std::span<GradSlot> dx) {
                                  order.push_back("probe");
                                  dx[0].alias_or_accumulate(dy);
                                });
  backward(sum(probe * second * third));
  EXPECT_THAT(order, ElementsAre("third", "second", "probe", "first"));
}

TEST_F(Autograd, HookFiresAfterTheLastContribution) {
  const Variable shared = leaf({2}), other = leaf({3});
  int calls = 0;
  shared.on_grad_ready([&] {
    ++calls;
    EXPECT_THAT(grad(shared), ElementsAre(3 + 3 * 3));  // d/ds (s o + s o o) with o = 3
  });
  backward(sum(shared * other + shared * other * other));
  EXPECT_EQ(calls, 1);
}

TEST_F(Autograd, BackwardOrderPredictsTheOrderOfHooks) {
  const Variable a = leaf({1}), b = leaf({2}), c = leaf({3}), unused = leaf({4});
  const Variable first = a * b, second = first * c;
  const Variable loss = sum(second + scale(b, 2));
  const std::vector<Variable> expected = backward_order(loss);
  EXPECT_EQ(expected.size(), 3U);
  EXPECT_FALSE(a.has_new_grad());
  std::vector<Variable> found;
  for (const Variable* each : {&a, &b, &c, &unused})
    each->on_grad_ready([&found, each] { found.push_back(*each); });
  backward(loss);  // backward_order() has left the graph intact
  EXPECT_EQ(found, expected);
  EXPECT_THAT(convoy::testing::message_of<UsageError>([&] { backward_order(loss); }),
              HasSubstr("an earlier backward freed"));
}

TEST_F(Autograd, GradBeginHookMaySetTheStorage) {
  const Variable x = leaf({1, 2}), unused = leaf({1});
  const Tensor storage = Tensor::full({2}, 7, DType::f64, device);
  int calls = 0;
  x.on_grad_begin([&] {
    ++calls;
    x.set_grad_storage(storage);
  });
  unused.on_grad_begin([&] { FAIL() << "no gradient is written"; });
  backward(sum(scale(x, 2) + scale(x, 3)));
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(storage.to_vector<double>(), ElementsAre(5, 5));
  backward(sum(x), {.accumulate = true});  // adds to the gradient in place
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(storage.to_vector<double>(), ElementsAre(6, 6));
  x.on_grad_begin(nullptr);
}

TEST_F(Autograd, ReadyHookRunsOnceBeforeTheFirstOperation) {
  const Variable x = leaf({1, 2});
  int calls = 0;
  const auto hook = [&] {
    ++calls;
    x.wait_ready();  // does not run the hook again
  };
  x.set_ready_hook(hook);
  EXPECT_EQ(x.shape(), Shape({2}));
  EXPECT_EQ(x.value().dtype(), DType::f64);
  EXPECT_FALSE(x.low_precision_copy().defined());
  EXPECT_FALSE(x.is_ready());
  EXPECT_EQ(calls, 0);
  const Variable y = scale(x, 2);
  EXPECT_EQ(calls, 1);
  backward(sum(y));
  x.wait_ready();
  EXPECT_TRUE(x.is_ready());
  EXPECT_EQ(calls, 1);
  x.set_ready_hook(hook);
  EXPECT_EQ(cast(x, DType::f32).dtype(), DType::f32);
  EXPECT_EQ(calls, 2);
}

TEST_F(Autograd, RecordRefusesAnInputThatMayNotBeReady) {
  const Variable x = leaf({1, 2});
  x.set_ready_hook([] {});
  EXPECT_THAT(testing::message_of<UsageError>([&] { record("twice", x.value(), {x}, nullptr); }),
              HasSubstr("twice: an input may not be ready"));
}

TEST_F(Autograd, RecordedCostCountsEachOperationOnce) {
  const Variable x = leaf({1, 2, 3});
  EXPECT_EQ(recorded_cost(x).forward, Cost{});
  const Variable y = scale(x, 2);                // 3 FLOPs; reads and writes 24 bytes
  const OpCost cost = recorded_cost(y * y + x);  // y is used twice
  EXPECT_EQ(cost.forward, (Cost{.flops = 9, .bytes = 48 + 72 + 72}));
  EXPECT_EQ(cost.backward, (Cost{.flops = 3 + 6, .bytes = 48 + 2 * 72}));
}

TEST_F(Autograd, LeafWithoutContributionHasNoNewGrad) {
  const Variable x = leaf({1});
  const Variable y = record("stop", Tensor::full({1}, 7, DType::f64, device), {scale(x, 2)},
                            [](const Tensor&, std::span<GradSlot>) {});
  backward(y);
  EXPECT_FALSE(x.has_new_grad());
}

TEST_F(Autograd, NoGradRecordsNothing) {
  const Variable x = leaf({1});
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(scale(x, 2).requires_grad());
  }
  EXPECT_TRUE(scale(x, 2).requires_grad());
  x.set_requires_grad(false);
  EXPECT_FALSE(scale(x, 2).requires_grad());
  x.set_requires_grad(true);
  EXPECT_THROW(scale(x, 2).set_requires_grad(false), UsageError);
  EXPECT_FALSE(scale(x, 2).detach().requires_grad());
}

TEST_F(Autograd, FreesSavedTensorsDuringBackward) {
  const std::int64_t n = 1 << 16;
  const Variable x(Tensor::full({n}, 0.5, DType::f32, device), true);
  Variable loss;
  {
    Variable y = x;
    for (int i = 0; i < 20; ++i) y = tanh(y);
    loss = sum(y);
  }
  const std::size_t with_graph = device.memory().stats().in_use;
  backward(loss);
  const std::size_t array = static_cast<std::size_t>(n) * sizeof(float);
  // Backward needs the leaf's gradient and at most two intermediate gradients, and frees 20 saved outputs.
  EXPECT_LE(device.memory().stats().peak_in_use, with_graph + 3 * array);
  EXPECT_LE(device.memory().stats().in_use + 19 * array, with_graph);
}

TEST_F(Autograd, HandlesDeepGraphs) {
  const Variable x = leaf({1});
  Variable y = x;
  for (int i = 0; i < 20000; ++i) y = scale(y, 1);
  backward(y);
  EXPECT_THAT(grad(x), ElementsAre(1));
}

void expect_error(const std::function<void()>& call, const std::string& text) {
  EXPECT_THAT(testing::message_of<UsageError>(call), HasSubstr(text));
}

TEST_F(Autograd, RejectsInvalidArguments) {
  const Variable x = leaf({1, 2});
  expect_error([&] { backward(scale(x, 2)); }, "variable [2] needs a seed");
  expect_error([&] { backward(x); }, "nothing was recorded");
  expect_error([&] { backward(sum(x.detach())); }, "nothing was recorded");
  expect_error([&] { backward(scale(x, 2), {.seed = Tensor::zeros({3}, DType::f64, device)}); },
               "seed is f64 [3]");
  const Variable loss = sum(scale(x, 2));
  backward(loss);
  expect_error([&] { backward(loss); }, "an earlier backward freed the graph at 'sum'");
  expect_error([&] { x.set_grad_storage(Tensor::zeros({3}, DType::f64, device)); },
               "gradient storage is f64 [3]");
  expect_error([&] { Variable(Tensor::zeros({1}, DType::i32, device), true); }, "a variable of type i32");
  expect_error([&] { loss.set_value(Tensor::zeros({1}, DType::f64, device)); },
               "'sum' computed this variable");
}

}  // namespace
}  // namespace convoy
