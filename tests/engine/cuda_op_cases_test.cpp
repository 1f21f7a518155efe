// Tests of every op on a GPU: results and gradients match the CPU, repeat bit for bit, and allow empty
// batches.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/engine/op_samples.h"
#include "tests/testing/op_cases/evaluate.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

std::vector<OpCase> cases_and_tails() {
  std::vector<OpCase> cases = all_op_cases();
  for (OpCase& tail : tail_cases()) {
    tail.name = "tail_" + tail.name;
    cases.push_back(std::move(tail));
  }
  return cases;
}

class CudaOpCases : public GpuTest, public ::testing::WithParamInterface<OpCase> {
 protected:
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
};

TEST_P(CudaOpCases, AgreesWithTheCpu) {
  const OpCase& c = GetParam();
  const CaseResult exact = evaluate(c, DType::f64, cpu);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const DType dtype : {DType::f32, DType::f64}) {
    SCOPED_TRACE(to_string(dtype));
    const double relative = relative_tolerance(c, dtype);
    CaseResult first;
    for_each_order([&] {
      const CaseResult found = evaluate(c, dtype, gpu);
      EXPECT_LE(distance(found.y, exact.y), relative * (1 + norm_of(exact.y)));
      for (std::size_t i = 0; i < c.inputs.size(); ++i)
        EXPECT_LE(distance(found.gradients[i], exact.gradients[i]),
                  relative * (1 + norm_of(exact.gradients[i])))
            << "input " << i;
      if (first.y.empty()) first = found;
      EXPECT_EQ(found.y, first.y) << "depends on the order of threads";
      EXPECT_EQ(found.gradients, first.gradients) << "depends on the order of threads";
    });
  }
}

std::vector<OpCase> cases_with_a_batch() {
  std::vector<OpCase> cases = all_op_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.batched.empty(); });
  return cases;
}

class CudaEmptyBatch : public GpuTest, public ::testing::WithParamInterface<OpCase> {};

TEST_P(CudaEmptyBatch, GivesZeros) {
  const CaseResult result = evaluate(with_empty_batch(GetParam()), DType::f32, DeviceContext::create_cuda(0));
  EXPECT_THAT(result.y, ::testing::Each(0.0));
  for (const Values& gradient : result.gradients) EXPECT_THAT(gradient, ::testing::Each(0.0));
}

class CudaOpTypes : public GpuTest, public ::testing::WithParamInterface<OpCase> {};

void expect_double_at_every_address(const OpCase& c, DType dtype) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const std::int64_t offset : {0, 1})
    EXPECT_LE(roundings_of(c, dtype, gpu, offset), c.roundings) << to_string(dtype);
}

TEST_P(CudaOpTypes, Bf16MatchesDoubleAtEveryAddress) {
  expect_double_at_every_address(GetParam(), DType::bf16);
}

TEST_P(CudaOpTypes, F16MatchesDoubleAtEveryAddress) {
  expect_double_at_every_address(GetParam(), DType::f16);
}

TEST_P(CudaOpTypes, F32AndF64MatchDoubleAtEveryAddress) {
  for (const DType dtype : {DType::f32, DType::f64}) expect_double_at_every_address(GetParam(), dtype);
}

class CudaOpSamples : public GpuTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(CudaOpSamples, AgreeWithPyTorch) { expect_samples_agree(GetParam(), DeviceContext::create_cuda(0)); }

class CudaOpDb : public GpuTest {};

TEST_F(CudaOpDb, AgreesWithPyTorch) {
  const char* path = std::getenv("CONVOY_OP_SAMPLES");
  if (path == nullptr) GTEST_SKIP() << "needs CONVOY_OP_SAMPLES, a file of tests/reference/op_db.py";
  expect_op_db_agrees(path, DeviceContext::create_cuda(0));
}

INSTANTIATE_TEST_SUITE_P(All, CudaOpSamples, ::testing::ValuesIn(sampled_ops()),
                         [](const auto& parameter) { return parameter.param; });
INSTANTIATE_TEST_SUITE_P(All, CudaOpTypes, ::testing::ValuesIn(cases_of_every_type()),
                         [](const auto& parameter) { return parameter.param.name; });
INSTANTIATE_TEST_SUITE_P(All, CudaOpCases, ::testing::ValuesIn(cases_and_tails()),
                         [](const auto& parameter) { return parameter.param.name; });
INSTANTIATE_TEST_SUITE_P(All, CudaEmptyBatch, ::testing::ValuesIn(cases_with_a_batch()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace convoy::testing
