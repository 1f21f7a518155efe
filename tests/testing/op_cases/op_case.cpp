#include "tests/testing/op_cases/op_case.h"

#include <cmath>

#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/random.h"

namespace convoy::testing {

Tensor drawn(const Shape& shape, DType dtype, const DeviceContext& device, const std::string& key,
             const Domain& domain) {
  constexpr double kResolution = 4096, kMargin = 41 / kResolution;  // about 0.01
  std::uint32_t hash = 2166136261u;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  const Random random{.seed = hash, .purpose = RandomPurpose::test};
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double uniform = 2.0 * to_uniform(random.words(i)[0]) - 1;
    values[i] = std::round((domain.center + domain.bound * uniform) * kResolution) / kResolution;
    for (const double kink : domain.kinks)
      if (const double distance = values[i] - kink; std::abs(distance) < kMargin)
        values[i] = kink + std::copysign(kMargin, distance);
  }
  return Tensor::from(values, shape, device).to(dtype);
}

Variable parameter(const Variable& values) {
  return is_half(values.dtype()) ? cast(values, DType::f32) : values;
}

std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (const auto& family : {elementwise_cases, matmul_cases, conv2d_cases, conv2d_transpose_cases,
                             batch_norm_cases, pool2d_cases, loss_cases, arithmetic_cases, indexing_cases,
                             movement_cases, reductions_cases, attention_cases, normalization_cases})
    for (OpCase& op_case : family()) all.push_back(std::move(op_case));
  return all;
}

}  // namespace convoy::testing
