#include "bench/overhead/overhead.h"

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"

namespace convoy::bench {
namespace {

using Inputs = std::vector<Variable>;

struct Case {
  std::string name;
  std::vector<Shape> inputs;
  std::function<Variable(const Inputs&)> op;
};

const Tensor& labels() {
  static const Tensor two = Tensor::from<std::int32_t>({0, 1}, {2}, Device::cpu());
  return two;
}

Variable chain_of_relus(Variable x) {
  for (int i = 0; i < 10; ++i) x = relu(x);
  return x;
}

std::vector<Case> cases() {
  return {{"relu", {{4}}, [](const Inputs& x) { return relu(x[0]); }},
          {"add", {{4}, {4}}, [](const Inputs& x) { return add(x[0], x[1]); }},
          {"mul", {{4}, {4}}, [](const Inputs& x) { return mul(x[0], x[1]); }},
          {"sum", {{4}}, [](const Inputs& x) { return sum(x[0]); }},
          {"reshape",
           {{4}},
           [](const Inputs& x) {
             return reshape(x[0], {2, 2});
           }},
          {"softmax", {{2, 4}}, [](const Inputs& x) { return softmax(x[0], 1); }},
          {"linear", {{2, 4}, {4, 4}, {4}}, [](const Inputs& x) { return linear(x[0], x[1], x[2]); }},
          {"conv2d",
           {{1, 4, 4, 4}, {4, 3, 3, 4}},
           [](const Inputs& x) { return conv2d(x[0], x[1], {}, {.padding = 1}); }},
          {"max_pool2d",
           {{1, 4, 4, 4}},
           [](const Inputs& x) { return max_pool2d(x[0], {.kernel = 2, .stride = 2}); }},
          {"cross_entropy", {{2, 4}}, [](const Inputs& x) { return cross_entropy_sum(x[0], labels()); }},
          {"ten_relus", {{4}}, [](const Inputs& x) { return chain_of_relus(x[0]); }}};
}

/// Returns the nanoseconds per call of `run`.
Spread time(int rounds, double seconds, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [&](std::int64_t calls) {
    const Clock::time_point begin = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) run();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::int64_t calls = 16;
  while (seconds_of(calls) < seconds / 2) calls *= 2;
  std::vector<double> nanoseconds;
  for (int round = 0; round < rounds; ++round)
    nanoseconds.push_back(1e9 * seconds_of(calls) / static_cast<double>(calls));
  return spread_of(nanoseconds);
}

Overhead measure(const Case& each, int rounds, double seconds) {
  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  Inputs inputs;
  for (const Shape& shape : each.inputs) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
    inputs.emplace_back(Tensor::from(values, shape, device), /*requires_grad=*/true);
  }
  Overhead found{.name = each.name};
  {
    const NoGrad no_grad;
    found.inference = time(rounds, seconds, [&] { each.op(inputs); });
  }
  found.recorded = time(rounds, seconds, [&] { each.op(inputs); });
  const Tensor gradient = Tensor::full(each.op(inputs).shape(), 1, DType::f32, device);
  found.training = time(rounds, seconds, [&] {
    backward(each.op(inputs), {.seed = gradient});
    for (const Variable& input : inputs) input.consume_grad();
  });
  return found;
}

}  // namespace

std::vector<Overhead> measure_overheads(int rounds, double seconds) {
  std::vector<Overhead> overheads;
  for (const Case& each : cases()) overheads.push_back(measure(each, rounds, seconds));
  return overheads;
}

nlohmann::ordered_json to_json(const std::vector<Overhead>& overheads) {
  nlohmann::ordered_json all;
  for (const Overhead& each : overheads)
    all[each.name] = {{"inference_ns", each.inference.median},
                      {"recorded_ns", each.recorded.median},
                      {"training_ns", each.training.median}};
  return all;
}

}  // namespace convoy::bench
