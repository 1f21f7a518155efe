// Compares WeightAverage on a GPU with the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/engine/optim/weight_average.h"
#include "tests/testing/support/gpu.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using testing::TinyTraining;

class CudaWeightAverage : public testing::GpuTest {};

/// Returns all parameters and buffers after updates of the average of a model on `device`, in f32.
std::vector<float> averaged(const DeviceContext& device) {
  const TinyTraining training;
  training.net->to(device);
  training.net->keep_low_precision_copies(DType::bf16);
  optim::WeightAverage average(*training.net);
  for (const std::uint64_t seed : {5, 6, 7}) {
    training.net->initialize(seed);
    average.update(0.3);
  }
  average.write_back();
  training.net->initialize(8);
  average.swap();
  std::vector<float> all;
  for (const optim::NamedState& state : average.state("average")) {
    const std::vector<float> values = state.tensor.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const nn::NamedParameter& parameter : training.net->parameters()) {
    const Variable& variable = parameter.variable;
    const std::vector<float> values = variable.value().to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
    if (!variable.low_precision_copy().defined()) continue;
    EXPECT_EQ(variable.low_precision_copy().to(DType::f32).to_vector<float>(),
              variable.value().to(DType::bf16).to(DType::f32).to_vector<float>())
        << parameter.name;
  }
  return all;
}

TEST_F(CudaWeightAverage, EqualsTheCpu) {
  const std::vector<float> expected = averaged(Device::cpu());
  for_each_order([&] {
    const std::vector<float> found = averaged(DeviceContext::create_cuda(0));
    ASSERT_EQ(found.size(), expected.size());
    // One device may contract a multiplication and an addition to FMA: two roundings less in each of three updates.
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i],
                  6 * std::numeric_limits<float>::epsilon() * (std::abs(expected[i]) + 1))
          << i;
  });
}

}  // namespace
}  // namespace convoy
