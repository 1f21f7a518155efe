#include "engine/autograd/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"
#include "tests/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Autograd : public ::testing::Test {
 protected:
  Variable leaf(const std::vector<double>& values) {
    return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, device), true);
  }
  static std::vector<double> grad(const Variable& x) { return x.grad().to_vector<double>(); }

  const Device device = Device::cpu({.threads = 1});
};

TEST_F(Autograd, SumsOverAllPathsOfADiamond) {
  const Variable x = leaf({1, 2, 3});
  const Variable a = scale(x, 2);
  backward(sum(a * a + scale(a, 3) + x));  // 4 x^2 + 6 x + x
  EXPECT_THAT(grad(x), ElementsAre(15, 23, 31));
}

TEST_F(Autograd, ANeighboursGradientIsNotOverwritten) {
  // The gradient of z reaches x and y as one shared tensor; x's second contribution must not show up in y.
  const Variable p = leaf({1, 2});
  const Variable q = leaf({3, 4});
  const Variable x = scale(p, 1), y = scale(q, 1);
  const Variable x_again = scale(x, 5);
  const Variable z = x + y;
  backward(sum(z + x_again));
  EXPECT_THAT(grad(p), ElementsAre(6, 6));
  EXPECT_THAT(grad(q), ElementsAre(1, 1));
}

TEST_F(Autograd, ReplacesByDefaultAndAddsWhenTold) {
  const Variable x = leaf({1});
  backward(sum(scale(x, 2)));
  backward(sum(scale(x, 3)));
  EXPECT_THAT(grad(x), ElementsAre(3));
  backward(sum(scale(x, 4)), {.accumulate = true});
  EXPECT_THAT(grad(x), ElementsAre(7));
  x.consume_grad();  // an update was made: the next contribution is a first one
  backward(sum(scale(x, 5)), {.accumulate = true});
  EXPECT_THAT(grad(x), ElementsAre(5));
}

TEST_F(Autograd, FreshnessTellsUsedFromUnused) {
  const Variable used = leaf({1}), unused = leaf({1});
  EXPECT_FALSE(used.has_fresh_grad());
  backward(sum(scale(used, 2)));
  EXPECT_TRUE(used.has_fresh_grad());
  EXPECT_FALSE(unused.has_fresh_grad());
  used.consume_grad();
  EXPECT_FALSE(used.has_fresh_grad());
}

TEST_F(Autograd, AReleasedGradientGivesItsMemoryBack) {
  const Tensor bucket = Tensor::full({2}, -1, DType::f64, device);
  const Variable x = leaf({1, 2}), y = leaf({3, 4});
  y.set_grad_storage(bucket);
  backward(sum(x * y));
  const Tensor held = x.grad();
  EXPECT_THROW(x.release_grad(), UsageError) << "fresh: an update would miss it";
  for (const Variable& used : {x, y}) {
    used.consume_grad();
    EXPECT_TRUE(used.grad().defined());
    used.release_grad();
  }
  EXPECT_TRUE(held.is_only_owner());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(y.grad().shares_storage_with(bucket)) << "lent: not its own to give";
  backward(sum(scale(x, 5) + y));
  EXPECT_THAT(grad(x), ElementsAre(5, 5));
}

TEST_F(Autograd, TheGraphHoldsNoValueThatNoBackwardSaved) {
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
  EXPECT_FALSE(saved.is_only_owner()) << "by relu";
  backward(y);
  EXPECT_TRUE(saved.is_only_owner());
  EXPECT_THAT(grad(x), ElementsAre(2, 0));
}

TEST_F(Autograd, AnInputOfTheGraphIsKnownButForItsValue) {
  const Variable x = leaf({1, 2});
  const Variable twice = scale(x, 2);
  const Variable y = scale(twice, 3);
  const Variable input = y.creator()->inputs[0];
  EXPECT_EQ(input, twice);
  EXPECT_EQ(input.shape(), Shape{2});
  EXPECT_EQ(input.dtype(), DType::f64);
  EXPECT_EQ(input.device(), device);
  EXPECT_THAT(testing::message_of<UsageError>([&] { input.value(); }), HasSubstr("no value of 'scale'"));
  EXPECT_THAT(twice.creator()->inputs[0].value().to_vector<double>(), ElementsAre(1, 2))
      << "a leaf's is at hand";
}

TEST_F(Autograd, GradientsAreBornInTheirStorage) {
  const Tensor bucket = Tensor::full({5}, -1, DType::f64, device);
  const Variable x = leaf({1, 2}), y = leaf({3, 4});
  x.set_grad_storage(bucket.slice(3, {2}));
  y.set_grad_storage(bucket.slice(0, {2}));
  for (int step = 0; step < 2; ++step) {
    backward(sum(x * y));
    EXPECT_THAT(bucket.to_vector<double>(), ElementsAre(1, 2, -1, 3, 4));
    EXPECT_TRUE(x.grad().shares_storage_with(bucket));
  }
}

TEST_F(Autograd, HooksFireWhileBackwardStillRuns) {
  // A chain first -> second -> third: the last weight's gradient is complete before the first's is begun.
  const Variable first = leaf({2}), second = leaf({3}), third = leaf({5});
  std::vector<std::string> order;
  const auto watch = [&](const Variable& x, const std::string& name) {
    // By reference: a hook that held its own variable would keep both alive for ever.
    x.on_grad_ready([&order, &x, name] {
      EXPECT_TRUE(x.has_fresh_grad());
      order.push_back(name);
    });
  };
  watch(first, "first");
  watch(second, "second");
  watch(third, "third");
  const Variable probe = record("probe", Tensor::full({1}, 1, DType::f64, device), {first},
                                [&](const Tensor& dy, std::span<GradSlot> dx) {
                                  order.push_back("probe");
                                  dx[0].take(dy);
                                });
  backward(sum(probe * second * third));
  EXPECT_THAT(order, ElementsAre("third", "second", "probe", "first"));
}

TEST_F(Autograd, HookWaitsForTheLastOfSeveralUses) {
  const Variable shared = leaf({2}), other = leaf({3});
  int calls = 0;
  shared.on_grad_ready([&] {
    ++calls;
    EXPECT_THAT(grad(shared), ElementsAre(3 + 3 * 3));  // d/ds (s o + s o o) with o = 3
  });
  backward(sum(shared * other + shared * other * other));
  EXPECT_EQ(calls, 1);
}

TEST_F(Autograd, TellsTheOrderOfHooksBeforehand) {
  const Variable a = leaf({1}), b = leaf({2}), c = leaf({3}), unused = leaf({4});
  const Variable first = a * b, second = first * c;
  const Variable loss = sum(second + scale(b, 2));
  const std::vector<Variable> expected = backward_order(loss);
  EXPECT_EQ(expected.size(), 3U);
  EXPECT_FALSE(a.has_fresh_grad());
  std::vector<Variable> found;
  for (const Variable* each : {&a, &b, &c, &unused})
    each->on_grad_ready([&found, each] { found.push_back(*each); });
  backward(loss);  // the graph is whole still
  EXPECT_EQ(found, expected);
  EXPECT_THAT(convoy::testing::message_of<UsageError>([&] { backward_order(loss); }),
              HasSubstr("an earlier backward freed"));
}

TEST_F(Autograd, AGradientMayBeGivenItsStorageAtTheLastMoment) {
  const Variable x = leaf({1, 2}), unused = leaf({1});
  const Tensor place = Tensor::full({2}, 7, DType::f64, device);
  int calls = 0;
  x.on_grad_begin([&] {
    ++calls;
    x.set_grad_storage(place);
  });
  unused.on_grad_begin([&] { FAIL() << "nothing is written there"; });
  backward(sum(scale(x, 2) + scale(x, 3)));
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(place.to_vector<double>(), ElementsAre(5, 5));
  backward(sum(x), {.accumulate = true});  // to what is there, where it is
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(place.to_vector<double>(), ElementsAre(6, 6));
  x.on_grad_begin(nullptr);
}

TEST_F(Autograd, AValueIsWaitedForWhereItIsAskedFor) {
  const Variable x = leaf({1, 2});
  int arrivals = 0;
  const auto arrive = [&] {
    ++arrivals;
    EXPECT_EQ(x.value().numel(), 2);  // which asks nobody a second time
  };
  x.set_arrival(arrive);
  EXPECT_EQ(x.shape(), Shape({2}));
  EXPECT_EQ(x.dtype(), DType::f64);
  EXPECT_EQ(arrivals, 0);
  const Variable y = scale(x, 2);
  EXPECT_EQ(arrivals, 1);
  backward(sum(y));
  EXPECT_FALSE(x.half_copy().defined());
  EXPECT_EQ(arrivals, 1);
  x.set_arrival(arrive);
  EXPECT_FALSE(x.half_copy().defined());
  EXPECT_EQ(arrivals, 2);
}

TEST_F(Autograd, AnOperationThatContributesNothingLeavesALeafStale) {
  const Variable x = leaf({1});
  const Variable y = record("stop", Tensor::full({1}, 7, DType::f64, device), {scale(x, 2)},
                            [](const Tensor&, std::span<GradSlot>) {});
  backward(y);
  EXPECT_FALSE(x.has_fresh_grad());
}

TEST_F(Autograd, NoGradRecordsNothing) {
  const Variable x = leaf({1});
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(scale(x, 2).requires_grad());
  }
  EXPECT_TRUE(scale(x, 2).requires_grad());
  EXPECT_FALSE(scale(x, 2).detach().requires_grad());
}

TEST_F(Autograd, FreesWhatWasSavedAsItGoes) {
  const std::int64_t n = 1 << 16;
  const Variable x(Tensor::full({n}, 0.5, DType::f32, device), true);
  Variable loss;
  {
    Variable y = x;
    for (int i = 0; i < 20; ++i) y = tanh(y);
    loss = sum(y);
  }
  const std::size_t with_graph = device.memory().stats().in_use;
  device.memory().reset_peak();
  backward(loss);
  const std::size_t array = static_cast<std::size_t>(n) * sizeof(float);
  // Backward needs the leaf's gradient and at most two gradients in flight, and hands back 20 saved outputs.
  EXPECT_LE(device.memory().stats().peak_in_use, with_graph + 3 * array);
  EXPECT_LE(device.memory().stats().in_use + 19 * array, with_graph);
}

TEST_F(Autograd, ADeepGraphIsNoProblem) {
  const Variable x = leaf({1});
  Variable y = x;
  for (int i = 0; i < 20000; ++i) y = scale(y, 1);
  backward(y);
  EXPECT_THAT(grad(x), ElementsAre(1));
}

void expect_refused(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    FAIL() << "was accepted; expected: " << text;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST_F(Autograd, RefusesWhatCannotBe) {
  const Variable x = leaf({1, 2});
  expect_refused([&] { backward(scale(x, 2)); }, "a variable [2] needs a seed");
  expect_refused([&] { backward(x); }, "nothing was recorded");
  expect_refused([&] { backward(sum(x.detach())); }, "nothing was recorded");
  expect_refused([&] { backward(scale(x, 2), {.seed = Tensor::zeros({3}, DType::f64, device)}); },
                 "a seed f64 [3]");
  const Variable loss = sum(scale(x, 2));
  backward(loss);
  expect_refused([&] { backward(loss); }, "an earlier backward freed the graph at 'sum'");
  expect_refused([&] { x.set_grad_storage(Tensor::zeros({3}, DType::f64, device)); },
                 "gradient storage f64 [3]");
  expect_refused([&] { Variable(Tensor::zeros({1}, DType::i32, device), true); }, "a gradient of i32 values");
  expect_refused([&] { loss.set_value(Tensor::zeros({1}, DType::f64, device)); },
                 "'sum' computed this variable");
}

}  // namespace
}  // namespace convoy
