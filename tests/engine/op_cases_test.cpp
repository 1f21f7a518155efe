// Property tests of every OpCase: gradients, gradient modes, precisions, reproducibility, empty batches,
// errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/autograd/check_gradients.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/engine/op_samples.h"
#include "tests/testing/op_cases/evaluate.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

class OpCases : public ::testing::TestWithParam<OpCase> {
 protected:
  // One thread: the arrays are too small to gain from more.
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
};

TEST_P(OpCases, GradientsMatchFiniteDifferences) {
  const OpCase& c = GetParam();
  std::vector<Tensor> values;
  const std::vector<Variable> x = arguments(c, DType::f64, cpu);
  for (const Variable& argument : x) values.push_back(argument.value());
  const Tensor weights = drawn(c.op(x).shape(), DType::f64, cpu, c.name + "weights");
  EXPECT_NO_THROW(check_gradients_at(c.op, values, weights));
}

TEST_P(OpCases, SecondContributionAccumulates) {
  const OpCase& c = GetParam();
  const CaseResult once = evaluate(c, DType::f64, cpu);
  const std::vector<Variable> x = arguments(c, DType::f64, cpu);
  const Variable y = c.op(x);
  const Tensor weights = drawn(y.shape(), DType::f64, cpu, c.name + "weights");
  backward(y, {.seed = weights});
  backward(c.op(x), {.accumulate = true, .seed = weights});
  for (std::size_t i = 0; i < x.size(); ++i) {
    Values twice = once.gradients[i];
    for (double& value : twice) value *= 2;
    EXPECT_LE(distance(values_of(x[i].grad()), twice),
              4 * std::numeric_limits<double>::epsilon() * norm_of(twice));
  }
}

TEST_P(OpCases, SingleGradientsEqualJointOnes) {
  const OpCase& c = GetParam();
  const CaseResult all = evaluate(c, DType::f64, cpu);
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseResult alone = evaluate(c, DType::f64, cpu, i);
    EXPECT_EQ(alone.gradients[i], all.gradients[i]);
    for (std::size_t other = 0; other < c.inputs.size(); ++other)
      EXPECT_EQ(alone.gradients[other].empty(), other != i);
  }
}

TEST_P(OpCases, SinglePrecisionMatchesDouble) {
  const OpCase& c = GetParam();
  const CaseResult exact = evaluate(c, DType::f64, cpu);
  const CaseResult single = evaluate(c, DType::f32, cpu);
  const double relative = relative_tolerance(c, DType::f32);
  EXPECT_LE(distance(single.y, exact.y), relative * (1 + norm_of(exact.y)));
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    EXPECT_LE(distance(single.gradients[i], exact.gradients[i]), relative * (1 + norm_of(exact.gradients[i])))
        << "input " << i;
}

TEST_P(OpCases, RepeatsBitForBit) {
  const OpCase& c = GetParam();
  const CaseResult first = evaluate(c, DType::f32, cpu);
  const CaseResult second = evaluate(c, DType::f32, cpu);
  EXPECT_EQ(first.y, second.y);
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST_P(OpCases, EmptyBatch) {
  const OpCase c = with_empty_batch(GetParam());
  if (c.batched.empty()) return;  // the op has no batch
  for (const DType dtype : {DType::f32, DType::f64}) {
    const CaseResult result = evaluate(c, dtype, cpu);
    for (const double value : result.y) EXPECT_EQ(value, 0);
    for (const Values& gradient : result.gradients)
      for (const double value : gradient) EXPECT_EQ(value, 0);  // a sum over no samples
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpCases, ::testing::ValuesIn(all_op_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

class OpTypes : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpTypes, MatchDoubleAtEveryAddress) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const std::int64_t offset : {0, 1})
      EXPECT_LE(roundings_of(GetParam(), dtype, cpu, offset), GetParam().roundings) << to_string(dtype);
}

INSTANTIATE_TEST_SUITE_P(All, OpTypes, ::testing::ValuesIn(cases_of_every_type()),
                         [](const auto& parameter) { return parameter.param.name; });

class OpSamples : public ::testing::TestWithParam<std::string> {};

TEST_P(OpSamples, AgreeWithPyTorch) {
  expect_samples_agree(GetParam(), DeviceContext::create_cpu({.threads = 2}));
}

INSTANTIATE_TEST_SUITE_P(All, OpSamples, ::testing::ValuesIn(sampled_ops()),
                         [](const auto& parameter) { return parameter.param; });

TEST(OpDb, AgreesWithPyTorch) {
  const char* path = std::getenv("CONVOY_OP_SAMPLES");
  if (path == nullptr) GTEST_SKIP() << "needs CONVOY_OP_SAMPLES, a file of tests/reference/op_db.py";
  expect_op_db_agrees(path, DeviceContext::create_cpu({.threads = 2}));
}

TEST(OpErrors, StateWhatWasFoundAndExpected) {
  for (const ErrorCase& c : error_cases())
    EXPECT_THAT(message_of<UsageError>(c.call), ::testing::HasSubstr(c.expected)) << c.text;
}

}  // namespace
}  // namespace convoy::testing
