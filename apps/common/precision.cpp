#include "convoy/apps/common/precision.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

// name, type of parameters, type of computation, TF32
const std::vector<Precision> kPrecisions = {{"fp64", DType::f64, DType::f64, false},
                                            {"fp32", DType::f32, DType::f32, false},
                                            {"tf32", DType::f32, DType::f32, true},
                                            {"bf16", DType::f32, DType::bf16, false},
                                            {"fp16", DType::f32, DType::f16, false}};

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& precision : kPrecisions) names.push_back(precision.name);
  return names;
}

Precision parse_precision(std::string_view name) {
  const auto found = std::ranges::find(kPrecisions, name, &Precision::name);
  check(found != kPrecisions.end(), "--precision: found '{}', expected one of {}", name,
        fmt::join(precision_names(), ", "));
  return *found;
}

bool supports(const DeviceContext& device, const Precision& precision) {
  return device.kind() == DeviceKind::cuda || (!precision.tf32 && precision.compute != DType::f16);
}

void check_precision(const Precision& precision, const DeviceContext& device) {
  check(supports(device, precision), "--precision {}: the CPU supports fp64, fp32 and bf16, expected a GPU",
        precision.name);
}

}  // namespace convoy
