#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

Tensor labels(const std::vector<std::int32_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu());
}

}  // namespace

std::vector<ErrorCase> error_cases() {
  const BatchNormStatistics running{zeros({4}).value(), zeros({4}).value()};
  std::vector<ErrorCase> cases = {
      {"cast_to_integers", [] { cast(zeros({2}), DType::u8); }, "cast: target type u8"},
      {"dropout_p",
       [] {
         dropout(zeros({2}), labels({0, 1}), 1, {});
       },
       "dropout: p = 1"},
      {"dropout_ids", [] { dropout(zeros({2}), labels({0}), 0.5, {}); },
       "sample ids i32 [1], expected i32 [2]"},
      {"reshape_size",
       [] {
         reshape(zeros({2, 3}), {4, 2});
       },
       "reshape: [2, 3] to [4, 2]"},
      {"flatten_vector", [] { flatten(zeros({2})); }, "flatten: input [2]"},
      {"mean_of_empty",
       [] {
         mean(zeros({0, 3}));
       },
       "mean: input [0, 3] has no elements"},
      {"matmul_sizes",
       [] {
         matmul(zeros({2, 3}), zeros({4, 5}));
       },
       "matmul: [2, 3] times [4, 5]"},
      {"matmul_rank",
       [] {
         matmul(zeros({3}), zeros({3, 5}));
       },
       "left factor [3] has 1 dimensions, expected at least 2"},
      {"matmul_batches",
       [] {
         matmul(zeros({2, 3, 4}), zeros({3, 4, 5}));
       },
       "matmul: [2, 3, 4] times [3, 4, 5]: leading sizes differ"},
      {"linear_features",
       [] {
         linear(zeros({2, 3}), zeros({5, 4}), Variable());
       },
       "linear: input [2, 3] has 3 features, weight [5, 4] expects 4"},
      {"linear_bias",
       [] {
         linear(zeros({2, 3}), zeros({5, 3}), zeros({4}));
       },
       "bias [4], expected [5]"},
      {"conv2d_rank",
       [] {
         conv2d(zeros({8, 8, 3}), zeros({4, 3, 3, 3}), Variable());
       },
       "input [8, 8, 3] has 3 dim"},
      {"conv2d_channels",
       [] {
         conv2d(zeros({1, 8, 8, 3}), zeros({4, 3, 3, 2}), Variable());
       },
       "has 3 channels, filter [4, 3, 3, 2] expects 2"},
      {"conv2d_groups",
       [] {
         conv2d(zeros({1, 8, 8, 6}), zeros({4, 3, 3, 2}), Variable(), {.groups = 3});
       },
       "found 3 groups and filter [4, 3, 3, 2], expected a divisor of its 4 output channels"},
      {"conv2d_group_channels",
       [] {
         conv2d(zeros({1, 8, 8, 6}), zeros({4, 3, 3, 2}), Variable(), {.groups = 2});
       },
       "input [1, 8, 8, 6] has 6 channels, filter [4, 3, 3, 2] expects 4"},
      {"conv2d_too_small",
       [] {
         conv2d(zeros({1, 4, 4, 3}), zeros({4, 5, 5, 3}), Variable());
       },
       "a window of 5 does not fit into 4 pixels with padding 0"},
      {"conv2d_stride",
       [] {
         conv2d(zeros({1, 4, 4, 3}), zeros({4, 3, 3, 3}), Variable(), {.stride = 0});
       },
       "kernel 3, stride 0, padding 0"},
      {"conv2d_bias",
       [] {
         conv2d(zeros({1, 4, 4, 3}), zeros({4, 3, 3, 3}), zeros({3}));
       },
       "bias [3], expected [4]"},
      {"batch_norm_channels",
       [=] {
         batch_norm(zeros({2, 3}), zeros({4}), zeros({4}), running, true);
       },
       "batch_norm: scale [4], expected [3]"},
      {"batch_norm_one_value",
       [=] {
         batch_norm(zeros({1, 1, 1, 4}), zeros({4}), zeros({4}), running, true);
       },
       "has one value per channel"},
      {"batch_norm_residual_shape",
       [=] {
         batch_norm(zeros({2, 4}), zeros({4}), zeros({4}), running, true, {}, zeros({4, 2}));
       },
       "batch_norm: residual [4, 2], expected the input's shape [2, 4]"},
      {"batch_norm_residual_type",
       [=] {
         batch_norm(zeros({2, 4}), zeros({4}), zeros({4}), running, true, {}, zeros({2, 4}, DType::f64));
       },
       "batch_norm with a residual: element types of f32 [2, 4] and f64 [2, 4] differ"},
      {"batch_norm_scale_type",
       [=] {
         batch_norm(zeros({2, 4}, DType::f64), zeros({4}), zeros({4}), running, true);
       },
       "batch_norm: scale is f32, expected f64 for an input of f64"},
      {"batch_norm_half_precision_scale",
       [=] {
         batch_norm(zeros({2, 4}, DType::bf16), zeros({4}, DType::bf16), zeros({4}), running, true);
       },
       "batch_norm: scale is bf16, expected f32 for an input of bf16"},
      {"batch_norm_gelu_and_residual",
       [=] {
         batch_norm(zeros({2, 4}), zeros({4}), zeros({4}), running, true,
                    {.activation = FusedActivation::gelu}, zeros({2, 4}));
       },
       "batch_norm with a residual: found a GELU, expected a ReLU or no activation"},
      {"pool_padding",
       [] {
         max_pool2d(zeros({1, 4, 4, 1}), {.kernel = 2, .stride = 2, .padding = 2});
       },
       "padding 2 is more than half of kernel 2"},
      {"pool_too_small",
       [] {
         avg_pool2d(zeros({1, 1, 4, 1}), {});
       },
       "a window of 2 does not fit into 1 pixels"},
      {"global_pool_rank",
       [] {
         global_avg_pool2d(zeros({2, 3}));
       },
       "input [2, 3] has 2 dimensions, expected 4"},
      {"labels_count",
       [] {
         cross_entropy_sum(zeros({2, 3}), labels({0}));
       },
       "labels i32 [1], expected i32 [2]"},
      {"labels_range",
       [] {
         cross_entropy_sum(zeros({2, 3}), labels({0, 3}));
       },
       "label 3 of sample 1, expected 0 to 2"},
      {"smoothing",
       [] {
         cross_entropy_sum(zeros({1, 3}), labels({0}), 1);
       },
       "smoothing is 1"},
  };
  for (const auto& family :
       {arithmetic_error_cases, conv2d_transpose_error_cases, indexing_error_cases, movement_error_cases,
        reductions_error_cases, attention_error_cases, loss_error_cases, normalization_error_cases})
    for (ErrorCase& error : family()) cases.push_back(std::move(error));
  for (const UnaryOp& unary : unary_ops())
    cases.push_back({std::string(unary.name) + "_integers", [op = unary.op] { op(zeros({2}, DType::i32)); },
                     std::string(unary.name) + ": input is i32 [2], expected floating point"});
  return cases;
}

}  // namespace convoy::testing
