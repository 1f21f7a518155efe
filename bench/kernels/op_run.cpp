#include "bench/kernels/op_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/kernels/matmul.h"

namespace convoy::bench {

OpRun::OpRun(const testing::ModelCase& c, const DeviceContext& device)
    : case_(c), device_(device), source_(Tensor::zeros({1}, DType::f32, device), true) {
  for (std::size_t i = 0; i < c.arguments.size(); ++i) {
    const testing::Argument& argument = c.arguments[i];
    values_.push_back(
        testing::drawn(c.op.inputs[i], argument.dtype, device, c.op.name + std::to_string(i), c.op.domain));
    parameters_.push_back(argument.is_parameter ? Variable(values_[i], argument.wants_gradient) : Variable());
  }
  {
    const Variable y = forward(arguments(1)).front();
    ones_ = Tensor::full(y.shape(), 1, y.dtype(), device);
  }
  backward_seconds(1);
}

std::vector<OpRun::Arguments> OpRun::arguments(int calls) const {
  std::vector<Arguments> all(static_cast<std::size_t>(calls));
  for (Arguments& one : all) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (case_.arguments[i].is_parameter)
        one.push_back(parameters_[i]);
      else if (case_.arguments[i].wants_gradient)
        one.push_back(record("before", values_[i], {source_}, [](const Tensor&, std::span<GradSlot>) {}));
      else
        one.emplace_back(values_[i]);
    }
  }
  return all;
}

std::vector<Variable> OpRun::forward(const std::vector<Arguments>& arguments) const {
  std::vector<Variable> results;
  results.reserve(arguments.size());
  for (const Arguments& x : arguments) results.push_back(case_.op.op(x));
  return results;
}

double OpRun::forward_seconds(int calls) const {
  const std::vector<Arguments> x = arguments(calls);
  std::vector<Variable> results;
  return seconds_of(device_, [&] { results = forward(x); });
}

double OpRun::backward_seconds(int calls) const {
  std::vector<Variable> results = forward(arguments(calls));
  return seconds_of(device_, [&] {
    for (Variable& y : results) {
      backward(y, {.seed = ones_});
      y = {};  // training releases the graph during backward too
    }
  });
}

double seconds_of(const DeviceContext& device, const std::function<void()>& work, int calls) {
  device.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) work();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int calls_to_time(const DeviceContext& device, double seconds) {
  constexpr int kGpuCalls = 20;  // a launch takes less time than a kernel
  constexpr double kSeconds = 5e-3, kMax = 1000;
  if (device.kind() != DeviceKind::cpu) return kGpuCalls;
  return static_cast<int>(std::clamp(std::ceil(kSeconds / std::max(seconds, 1e-9)), 1.0, kMax));
}

namespace {

double median_seconds(const DeviceContext& device, const std::function<void()>& run) {
  run();  // initializes plans and caches
  const int calls = calls_to_time(device, seconds_of(device, run));
  std::vector<double> seconds(7);
  for (double& one : seconds) one = seconds_of(device, run, calls) / calls;
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
