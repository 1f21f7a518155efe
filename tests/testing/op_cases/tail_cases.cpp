// Op cases at the sizes at which CUDA kernels end a vector, a warp, a block or a tile, and one below and
// above.
#include <algorithm>

#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kSizes[] = {1, 31, 32, 33, 255, 257};

std::string named(std::string_view op, std::initializer_list<std::int64_t> sizes) {
  std::string name(op);
  for (const std::int64_t size : sizes) name.append(1, '_').append(std::to_string(size));
  return name;
}

void add_elementwise(std::vector<OpCase>& cases) {
  for (const std::int64_t n : kSizes) {
    cases.push_back({.name = named("scale", {n}), .inputs = {{n}}, .op = [](auto x) { return x[0] * 0.3; }});
    cases.push_back({.name = named("mean", {n}),
                     .inputs = {{n}},
                     .op = [](auto x) { return mean(x[0]); },
                     .terms = static_cast<double>(n)});
  }
}

void add_gemms(std::vector<OpCase>& cases) {
  constexpr std::int64_t kShapes[][3] = {{1, 1, 1}, {31, 33, 32}, {33, 31, 1}, {16, 257, 17}, {65, 32, 63}};
  for (const auto& [m, k, n] : kShapes) {
    cases.push_back({.name = named("matmul", {m, k, n}),
                     .inputs = {{m, k}, {k, n}},
                     .op = [](auto x) { return matmul(x[0], x[1]); },
                     .terms = static_cast<double>(std::max({m, k, n}))});
    cases.push_back({.name = named("linear", {m, k, n}),
                     .inputs = {{m, k}, {n, k}, {n}},
                     .op = [](auto x) { return linear(x[0], x[1], x[2]); },
                     .terms = static_cast<double>(std::max({m, k, n}))});
    cases.push_back({.name = named("linear_relu", {m, k, n}),
                     .inputs = {{m, k}, {n, k}, {n}},
                     .op = [](auto x) { return linear(x[0], x[1], x[2], true); },
                     .terms = static_cast<double>(std::max({m, k, n}))});
  }
}

void add_images(std::vector<OpCase>& cases) {
  for (const std::int64_t channels : {1, 3, 8, 31, 33}) {
    const Shape image{1, 7, 5, channels};
    const auto add = [&](std::string_view name, std::vector<Shape> inputs, auto op, double terms) {
      cases.push_back(
          {.name = named(name, {channels}), .inputs = std::move(inputs), .op = op, .terms = terms});
    };
    const Conv2dOptions same{.stride = 1, .padding = 1};
    const Conv2dOptions halving{.stride = 2, .padding = 1};
    const double terms = std::max(35.0, 9.0 * static_cast<double>(channels));
    add(
        "conv2d", {image, {5, 3, 3, channels}}, [same](auto x) { return conv2d(x[0], x[1], {}, same); },
        terms);
    add(
        "conv2d_stride2", {image, {4, 3, 3, channels}},
        [halving](auto x) { return conv2d(x[0], x[1], {}, halving); }, terms);
    const Pool2dOptions pooling{.kernel = 3, .stride = 2, .padding = 1};
    add(
        "max_pool2d", {image}, [pooling](auto x) { return max_pool2d(x[0], pooling); }, 9);
    add(
        "avg_pool2d", {image}, [pooling](auto x) { return avg_pool2d(x[0], pooling); }, 9);
    add(
        "global_avg_pool2d", {image}, [](auto x) { return global_avg_pool2d(x[0]); }, 35);
    add(
        "flatten", {{2, 7, 5, channels}}, [](auto x) { return flatten(x[0]); }, 1);
  }
}

void add_batch_norms(std::vector<OpCase>& cases) {
  constexpr std::int64_t kShapes[][2] = {{2, 1}, {33, 1}, {257, 3}, {31, 32}, {255, 33}, {2, 257}};
  for (const auto& [rows, channels] : kShapes)
    cases.push_back({.name = named("batch_norm", {rows, channels}),
                     .inputs = {{rows, channels}, {channels}, {channels}},
                     .op =
                         [](auto x) {
                           const Variable gamma = parameter(x[1]);
                           const Tensor& scale = gamma.value();
                           const auto zeros = [&] {
                             return Tensor::zeros(scale.shape(), scale.dtype(), scale.context());
                           };
                           const BatchNormStatistics running{zeros(), zeros()};
                           return batch_norm(x[0], gamma, parameter(x[2]), running, true);
                         },
                     // Dividing by the deviation of two rows amplifies errors if they happen to be close.
                     .terms = static_cast<double>(rows) * 64,
                     .roundings = rows > 2 ? 64.0 : 0});
}

}  // namespace

std::vector<OpCase> tail_cases() {
  std::vector<OpCase> cases;
  for (const auto& add : {add_elementwise, add_gemms, add_images, add_batch_norms}) add(cases);
  for (OpCase& op_case : all_op_cases()) {
    const std::string name = op_case.name;
    for (const std::vector<Shape>& inputs : op_case.tails) {
      op_case.name = name;
      for (const Shape& shape : inputs)
        for (const std::int64_t size : shape.sizes())
          op_case.name.append(1, '_').append(std::to_string(size));
      op_case.inputs = inputs;
      cases.push_back(op_case);
    }
  }
  return cases;
}

}  // namespace convoy::testing
