#include "convoy/engine/ops/arithmetic.h"

#include "convoy/engine/ops/movement.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

using Binary = Variable (*)(const Variable&, const Variable&);

struct BinaryOp {
  const char* name;
  Binary op;
  Domain domain = {};
};

const BinaryOp kBinaryOps[] = {
    {"add", add},         {"sub", sub},         {"mul", mul}, {"div", div, {.center = 2}},
    {"maximum", maximum}, {"minimum", minimum},
};

/// A condition for a result of this shape: 1 for about half of the elements.
Tensor condition_for(const Shape& shape, const DeviceContext& device) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 5 / 3 % 2);
  return Tensor::from(values, shape, device);
}

}  // namespace

std::vector<OpCase> arithmetic_cases() {
  std::vector<OpCase> cases;
  for (const BinaryOp& binary : kBinaryOps) {
    const auto op = [op = binary.op](std::span<const Variable> x) { return op(x[0], x[1]); };
    const auto add_case = [&](const std::string& suffix, std::vector<Shape> inputs, double terms,
                              std::vector<std::size_t> batched) {
      cases.push_back({.name = binary.name + suffix,
                       .inputs = std::move(inputs),
                       .op = op,
                       .domain = binary.domain,
                       .terms = terms,
                       .batched = std::move(batched),
                       .roundings = 16});
      return &cases.back();
    };
    OpCase* const equal = add_case("", {{3, 5, 7}, {3, 5, 7}}, 1, {0, 1});
    equal->tails = {{{257}, {257}}};
    equal->benchmark = {{128, 32, 32, 64}, {128, 32, 32, 64}};
    OpCase* const bias = add_case("_to_rows", {{4, 3, 5}, {5}}, 12, {0});
    bias->tails = {{{33, 31}, {31}}, {{2, 257}, {257}}, {{9, 32}, {1}}};
    add_case("_with_scalar", {{4, 6}, {1}}, 24, {0});
    add_case("_to_columns", {{4, 5}, {4, 1}}, 5, {0, 1});
    add_case("_both", {{2, 1, 5}, {3, 1}}, 10, {});
    add_case("_reversed", {{5}, {2, 3, 5}}, 6, {1});
  }
  cases.push_back(
      {.name = "where",
       .inputs = {{3, 4, 5}, {3, 4, 5}},
       .op = [](auto x) { return where(condition_for(x[0].shape(), x[0].context()), x[0], x[1]); },
       .batched = {0, 1},
       .roundings = 16,
       .tails = {{{257}, {257}}, {{255}, {255}}},
       .benchmark = {{128, 32, 32, 64}, {128, 32, 32, 64}}});
  cases.push_back({.name = "where_broadcast",
                   .inputs = {{4, 1}, {5}},
                   .op =
                       [](auto x) {
                         return where(condition_for({3, 4, 5}, x[0].context()), x[0], x[1]);
                       },
                   .terms = 15,
                   .roundings = 16});
  cases.push_back({.name = "add_scalar",
                   .inputs = {{3, 5, 7}},
                   .op = [](auto x) { return 0.5 - x[0] + 2; },
                   .batched = {0},
                   .roundings = 16,
                   .tails = {{{257}}},
                   .benchmark = {{128, 32, 32, 64}}});
  cases.push_back({.name = "divide_scalar",
                   .inputs = {{3, 5}},
                   .op = [](auto x) { return 3 / x[0] - x[0] / 2; },
                   .domain = {.center = 2},
                   .batched = {0},
                   .roundings = 16});
  return cases;
}

std::vector<ErrorCase> arithmetic_error_cases() {
  return {
      {"add_shapes",
       [] {
         add(zeros({2, 3}), zeros({3, 2}));
       },
       "add: found the shapes [2, 3] and [3, 2]"},
      {"mul_shapes", [] { mul(zeros({2}), zeros({3})); }, "mul: found the shapes [2] and [3]"},
      {"add_types", [] { add(zeros({2}), zeros({2}, DType::f64)); },
       "add: element types of f32 [2] and f64 [2] differ"},
      {"div_integers", [] { div(zeros({2}, DType::i32), zeros({2}, DType::i32)); }, "div: input is i32 [2]"},
      {"where_condition", [] { where(zeros({2}).value(), zeros({2}), zeros({2})); },
       "where: found a condition that is f32"},
      {"where_shapes", [] { where(Tensor::zeros({3}, DType::u8, Device::cpu()), zeros({2}), zeros({2})); },
       "where: found the shapes [3] and [2]"},
  };
}

}  // namespace convoy::testing
