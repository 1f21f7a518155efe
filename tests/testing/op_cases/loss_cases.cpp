#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

/// Every third label is ignored if a label has another number than that of its class.
Tensor labels_for(const Variable& logits, bool ignores) {
  const auto class_count = static_cast<std::size_t>(logits.shape()[-1]);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(logits.shape().numel()) / class_count);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = ignores && i % 3 == 1 ? -7 : static_cast<std::int32_t>((11 * i + 1) % class_count);
  return Tensor::from(
      labels, Shape(logits.shape().sizes().first(static_cast<std::size_t>(logits.shape().rank() - 1))),
      logits.context());
}

/// Returns drawn positive numbers in the type of the losses of logits.
Tensor positive_for(const Variable& logits, const Shape& shape) {
  return drawn(shape, is_half(logits.dtype()) ? DType::f32 : logits.dtype(), logits.context(), "positive",
               {.bound = 0.5, .center = 0.75});
}

/// Labels, or probabilities, with class weights and ignored rows.
OpCase weighted_cross_entropy(std::string name, Shape logits, Reduction reduction, bool has_labels,
                              double smoothing, bool of_log_p = false) {
  return {
      .name = std::move(name),
      .inputs = {logits},
      .op =
          [=](std::span<const Variable> x) {
            const Tensor target = has_labels ? labels_for(x[0], true) : positive_for(x[0], x[0].shape());
            const CrossEntropyOptions options{.smoothing = smoothing,
                                              .reduction = reduction,
                                              .class_weights = positive_for(x[0], {x[0].shape()[-1]}),
                                              .ignore_index = -7};
            return of_log_p ? nll_loss(x[0], target, options) : cross_entropy(x[0], target, options).loss;
          },
      .terms = 2 * static_cast<double>(logits.numel()),
      .batched = reduction == Reduction::mean ? std::vector<std::size_t>() : std::vector<std::size_t>{0},
      .roundings = 64,
      .tails =
          {{{4, 1}}, {{31, 10}}, {{4, 16}}, {{3, 17}}, {{5, 33}}, {{3, 2, 100}}, {{2, 1024}}, {{2, 1025}}},
      .benchmark = {{128, 1000}}};
}

OpCase cross_entropy_case(std::string name, std::int64_t samples, std::int64_t classes, double smoothing) {
  return {
      .name = std::move(name),
      .inputs = {{samples, classes}},
      .op =
          [smoothing](std::span<const Variable> x) {
            return cross_entropy_sum(x[0], labels_for(x[0], false), smoothing);
          },
      .terms = static_cast<double>(samples * classes),
      .batched = {0},
      .roundings = 32,
      // Short rows, up to the largest number of rows and classes of one block, and beyond; lanes with no class,
      // one class, and several classes; warps without a row; rows that a whole block processes.
      .tails = {{{1, 2}},
                {{31, 10}},
                {{257, 3}},
                {{1024, 16}},
                {{1025, 2}},
                {{3, 17}},
                {{33, 32}},
                {{3, 33}},
                {{6, 100}},
                {{5, 1000}},
                {{2, 1024}},
                {{2, 1025}},
                {{3, 1537}}}};
}

using Loss = Variable (*)(const Variable&, const Variable&, Reduction);

OpCase loss(std::string name, Loss op, Reduction reduction, const Domain& domain) {
  const bool reduces = reduction != Reduction::none;
  OpCase c{.name = std::move(name),
           .inputs = {{5, 7}, {5, 7}},
           .op = [op, reduction](auto x) { return op(x[0], x[1], reduction); },
           .domain = domain,
           .terms = reduces ? 35.0 : 1.0,
           .roundings = 24,
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
  for (const bool has_labels : {false, true}) {
    const std::string prefix = has_labels ? "cross_entropy_labels_" : "cross_entropy_probabilities_";
    cases.push_back(weighted_cross_entropy(prefix + "mean", {5, 7}, Reduction::mean, has_labels, 0.2));
    cases.push_back(weighted_cross_entropy(prefix + "sum", {4, 10}, Reduction::sum, has_labels, 0));
    cases.push_back(weighted_cross_entropy(has_labels ? "nll_loss_labels" : "nll_loss_probabilities", {5, 7},
                                           has_labels ? Reduction::mean : Reduction::none, has_labels, 0,
                                           true));
    cases.push_back(weighted_cross_entropy(prefix + "none", {2, 3, 5}, Reduction::none, has_labels, 0.1));
  }
  for (const auto& [suffix, reduction] :
       {std::pair{"", Reduction::mean}, {"_sum", Reduction::sum}, {"_none", Reduction::none}}) {
    cases.push_back(loss(std::string("mse_loss") + suffix, mse_loss, reduction, {}));
    cases.push_back(loss(std::string("l1_loss") + suffix, l1_loss, reduction, {}));
    const auto smooth_l1 = [](const Variable& x, const Variable& t, Reduction r) {
      return smooth_l1_loss(x, t, r, 0.5);
    };
    cases.push_back(loss(std::string("smooth_l1_loss") + suffix, smooth_l1, reduction, {}));
    const auto huber = [](const Variable& x, const Variable& t, Reduction r) {
      return huber_loss(x, t, r, 0.75);
    };
    cases.push_back(loss(std::string("huber_loss") + suffix, huber, reduction, {}));
    cases.push_back(loss(std::string("binary_cross_entropy_with_logits") + suffix,
                         binary_cross_entropy_with_logits, reduction, logits));
    cases.push_back(loss(std::string("kl_divergence") + suffix, kl_divergence, reduction, probabilities));
  }
  return cases;
}

}  // namespace convoy::testing
