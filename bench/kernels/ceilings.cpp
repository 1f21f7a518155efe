#include "bench/kernels/ceilings.h"

#include <algorithm>
#include <vector>

#include "bench/kernels/op_run.h"
#include "convoy/kernels/matmul.h"

namespace convoy::bench {
namespace {

double median_seconds(const DeviceContext& device, const std::function<void()>& run) {
  const auto seconds_of_calls = [&](int calls) {
    return seconds_of(device,
                      [&] {
                        for (int i = 0; i < calls; ++i) run();
                      }) /
           calls;
  };
  seconds_of_calls(1);  // initializes plans and caches
  const int calls = calls_to_time(device, seconds_of_calls(1));
  std::vector<double> seconds(7);
  for (double& one : seconds) one = seconds_of_calls(calls);
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return seconds[3];
}

}  // namespace

double Ceilings::seconds_of(const Cost& cost) const {
  const double moving = static_cast<double>(cost.bytes) / bytes_per_second;
  const double computing = flops_per_second > 0 ? static_cast<double>(cost.flops) / flops_per_second : 0;
  return std::max(moving, computing);
}

double measure_copy(const DeviceContext& device, const KernelRow& copy) {
  return static_cast<double>(copy.bytes_read + copy.bytes_written) /
         median_seconds(device, copy.prepare(device));
}

std::int64_t gemm_size(const DeviceContext& device) {
  return device.kind() == DeviceKind::cpu ? 2048 : 8192;  // CPU: about 0.1 s; GPU: fills the largest
}

double measure_gemm(const DeviceContext& device, DType dtype) {
  const std::int64_t n = gemm_size(device);
  // Random values: a GPU draws less power and runs faster if all values are equal.
  const Tensor a = testing::drawn({n, n}, dtype, device, "product");
  const Tensor c = Tensor::empty_like(a);
  const double seconds = median_seconds(device, [&] {
    on(device.stream(), [&](auto& s) { kernels::matmul(s, a.view(), a.view(), GradView(c.view())); });
  });
  return 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
}

}  // namespace convoy::bench
