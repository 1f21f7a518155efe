// Training steps in mixed precision on the CPU.
#include "tests/models/mixed_precision.h"

namespace convoy::testing {
namespace {

class MixedPrecision : public ::testing::TestWithParam<Scene> {};

TEST_P(MixedPrecision, OneStepIsNearF32) {
  for (const int threads : {1, 2})
    expect_step_near_f32(GetParam(), DeviceContext::create_cpu({.threads = threads}));
}

INSTANTIATE_TEST_SUITE_P(Nets, MixedPrecision,
                         ::testing::Values(Scene{"lenet", {28, 28, 1}, 4, "adamw", 11, 6, DType::bf16},
                                           Scene{"resnet20", {8, 8, 3}, 3, "sgd", 41, 19, DType::bf16},
                                           Scene{"speedrun-small", {25, 25, 3}, 4, "sgd", 22, 8, DType::bf16},
                                           Scene{"other_layers", {8, 8, 3}, 4, "adam", 11, 0, DType::bf16}),
                         [](const auto& parameter) { return ::testing::PrintToString(parameter.param); });

}  // namespace
}  // namespace convoy::testing
