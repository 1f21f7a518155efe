#include "convoy/apps/common/precision.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// Ampere, the first GPUs with GEMMs in bf16 and tf32.
constexpr int kAmpere = 80;

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

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const Precision& precision : precisions()) found.push_back(precision.name);
    return found;
  }();
  return names;
}

Precision parse_precision(std::string_view name) {
  const auto found = std::find_if(precisions().begin(), precisions().end(),
                                  [&](const Precision& precision) { return precision.name == name; });
  check(found != precisions().end(), "--precision: found '{}', expected one of {}", name,
        fmt::join(precision_names(), ", "));
  return *found;
}

bool supports(const DeviceContext& device, const Precision& precision) {
  if (!precision.tf32 && !precision.is_half()) return true;
  if (device.kind() == DeviceKind::cpu) return precision.compute == DType::bf16;
  // All GPUs that cuDNN 9 supports (Pascal and later) compute in f16.
  return precision.compute == DType::f16 || device.compute_capability() >= kAmpere;
}

void check_precision(const Precision& precision, const DeviceContext& device) {
  if (supports(device, precision)) return;
  check(device.kind() == DeviceKind::cuda,
        "--precision {}: the CPU supports fp64, fp32 and bf16, expected a GPU", precision.name);
  const int capability = device.compute_capability();
  fail<DeviceError>("--precision {}: {} has compute capability {}.{}, expected 8.0 or more; use fp16 or fp32",
                    precision.name, device.name(), capability / 10, capability % 10);
}

}  // namespace convoy
