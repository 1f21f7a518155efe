#include "convoy/engine/ops/losses.h"

#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase cross_entropy_case(std::string name, std::int64_t samples, std::int64_t classes, double smoothing) {
  return {.name = std::move(name),
          .inputs = {{samples, classes}},
          .op =
              [classes, smoothing](std::span<const Variable> x) {
                std::vector<std::int32_t> labels(static_cast<std::size_t>(x[0].shape()[0]));
                for (std::size_t i = 0; i < labels.size(); ++i)
                  labels[i] = static_cast<std::int32_t>((5 * i + 1) % static_cast<std::size_t>(classes));
                return cross_entropy_sum(x[0], Tensor::from(labels, {x[0].shape()[0]}, x[0].context()),
                                         smoothing);
              },
          .terms = static_cast<double>(samples * classes),
          .batched = {0}};
}

using Loss = Variable (*)(const Variable&, const Variable&, Reduction);

OpCase loss(std::string name, Loss op, Reduction reduction, const Domain& domain) {
  const bool reduces = reduction != Reduction::none;
  OpCase c{.name = std::move(name),
           .inputs = {{5, 7}, {5, 7}},
           .op = [op, reduction](auto x) { return op(x[0], x[1], reduction); },
           .domain = domain,
           .terms = reduces ? 35.0 : 1.0,
           .roundings = 16,
           .tails = {{{1}, {1}}, {{31}, {31}}, {{33}, {33}}, {{257}, {257}}, {{8193}, {8193}}},
           .benchmark = {{4096, 1024}, {4096, 1024}}};
  if (reduction != Reduction::mean) c.batched = {0, 1};
  if (reduces) c.tails.push_back({{3, 8195}, {3, 8195}});
  return c;
}

}  // namespace

std::vector<OpCase> loss_cases() {
  const Domain logits{.bound = 3};
  const Domain probabilities{.bound = 0.45, .center = 0.5};
  std::vector<OpCase> cases = {cross_entropy_case("cross_entropy", 5, 7, 0),
                               cross_entropy_case("cross_entropy_smoothed", 4, 10, 0.2),
                               cross_entropy_case("cross_entropy_one", 1, 1, 0)};
  for (const auto& [suffix, reduction] :
       {std::pair{"", Reduction::mean}, {"_sum", Reduction::sum}, {"_none", Reduction::none}}) {
    cases.push_back(loss(std::string("mse_loss") + suffix, mse_loss, reduction, {}));
    cases.push_back(loss(std::string("binary_cross_entropy_with_logits") + suffix,
                         binary_cross_entropy_with_logits, reduction, logits));
    cases.push_back(loss(std::string("kl_divergence") + suffix, kl_divergence, reduction, probabilities));
  }
  return cases;
}

std::vector<ErrorCase> loss_error_cases() {
  return {
      {"mse_loss_shapes",
       [] {
         mse_loss(zeros({2, 3}), zeros({3, 2}));
       },
       "mse_loss: shapes [2, 3] and [3, 2] differ"},
      {"mse_loss_integers", [] { mse_loss(zeros({2}, DType::i32), zeros({2}, DType::i32)); },
       "mse_loss: input is i32 [2], expected floating point"},
      {"mse_loss_of_nothing",
       [] {
         mse_loss(zeros({0, 3}), zeros({0, 3}));
       },
       "mse_loss: input [0, 3] has no elements"},
      {"binary_cross_entropy_types",
       [] { binary_cross_entropy_with_logits(zeros({2}), zeros({2}, DType::f64)); },
       "binary_cross_entropy_with_logits: element types of f32 [2] and f64 [2] differ"},
      {"kl_divergence_shapes", [] { kl_divergence(zeros({2}), zeros({3})); },
       "kl_divergence: shapes [2] and [3] differ"},
  };
}

}  // namespace convoy::testing
