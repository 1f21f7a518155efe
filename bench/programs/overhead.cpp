// convoy-bench-overhead: measures the time that an operation on a tiny tensor takes besides the arithmetic of its
// kernel.
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/programs/results.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"

namespace convoy::bench {
namespace {

/// Times of one operation on tensors of at most 64 elements, in nanoseconds per call. Nearly all of it is spent on
/// checks, on the allocation of results and on the recording of the graph.
struct Overhead {
  std::string name;
  Spread inference = {};  // forward, inside NoGrad
  Spread recorded = {};   // forward, recorded for a backward that never runs
  Spread training = {};   // forward and backward, from a gradient of the result
};

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

/// Times every case on the CPU with one thread: `rounds` rounds of at least `seconds` each per figure.
/// bench/python/pytorch_overhead.py has the same cases.
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

std::string cell(const Spread& spread) {
  return fmt::format("{:7.0f} ({:.0f} to {:.0f})", spread.median, spread.lowest, spread.highest);
}

int run(int argc, char** argv) {
  std::int64_t rounds = 5;
  double seconds = 0.02;
  std::string json;
  CommandLine line(
      "convoy-bench-overhead",
      "Times operations on tensors of a few elements on one CPU thread: checks, allocation and recording of "
      "the graph, without much arithmetic.");
  line.group("Measurement");
  line.add("rounds", &rounds, "Measured rounds; results are the median, minimum and maximum",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("seconds", &seconds, "Minimum duration of a round (seconds)",
           {.value = "S", .minimum = 1e-4, .maximum = 60});
  line.add("json", &json, "Result file (JSON)", {.value = "FILE"});
  if (!line.parse(argc, argv)) return 0;
  check_output_file("--json", json);
  warn_if_busy("convoy-bench-overhead");
  const std::vector<Overhead> overheads = measure_overheads(static_cast<int>(rounds), seconds);
  fmt::print("{:<14}  {:<24}  {:<24}  {}\n", "ns per call", "forward", "forward, recorded",
             "forward and backward");
  for (const Overhead& each : overheads)
    fmt::print("{:<14}  {:<24}  {:<24}  {}\n", each.name, cell(each.inference), cell(each.recorded),
               cell(each.training));
  write_json(json, to_json(overheads));
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-overhead", [&] { return convoy::bench::run(argc, argv); });
}
