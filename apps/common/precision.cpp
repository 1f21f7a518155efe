#include "convoy/apps/common/precision.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

const std::vector<Precision>& precisions() {
  static const std::vector<Precision> all = {
      {.name = "fp64", .parameters = DType::f64, .compute = DType::f64, .tf32 = false},
      {.name = "fp32", .parameters = DType::f32, .compute = DType::f32, .tf32 = false},
      {.name = "tf32", .parameters = DType::f32, .compute = DType::f32, .tf32 = true},
      {.name = "bf16", .parameters = DType::f32, .compute = DType::bf16, .tf32 = false},
      {.name = "fp16", .parameters = DType::f32, .compute = DType::f16, .tf32 = false},
  };
  return all;
}

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& precision : precisions()) names.push_back(precision.name);
  return names;
}

Precision parse_precision(std::string_view name) {
  const auto found = std::ranges::find(precisions(), name, &Precision::name);
  check(found != precisions().end(), "--precision: found '{}', expected one of {}", name,
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
