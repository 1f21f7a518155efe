#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/reduce.h"

namespace convoy {
namespace {

using detail::as_batch, detail::product_of;

/// Returns the leading sizes of `batch` followed by rows and columns.
Shape with_matrix(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> sizes(batch.sizes().begin(), batch.sizes().end() - 2);
  sizes.insert(sizes.end(), {rows, columns});
  return Shape(sizes);
}

// c_i = a_i b_i      da_i = dc_i b_i^T      db_i = a_i^T dc_i; da is the sum of the da_i if all a_i are the
// same.
Variable batched_matmul(const Variable& a, const Variable& b) {
  const Shape& left = a.shape();
  const Shape& right = b.shape();
  if (right.rank() == 2) {  // one GEMM: all rows of all matrices of a times b
    const Variable rows = reshape(a, {product_of(left, 0, left.rank() - 1), left[-1]});
    return reshape(matmul(rows, b), with_matrix(left, left[-2], right[-1]));
  }
  const bool shares_a = left.rank() == 2;
  check(shares_a || with_matrix(left, 0, 0) == with_matrix(right, 0, 0),
        "matmul: {} times {}: leading sizes differ", left.text(), right.text());
  const detail::OpScope scope("matmul", a, b);
  Tensor c = Tensor::empty(with_matrix(right, left[-2], right[-1]), a.dtype(), detail::result_context(a, b));
  on(c.stream(), [&](auto& s) {
    kernels::matmul(s, as_batch(a.value().view()), as_batch(b.value().view()), GradView(as_batch(c.view())));
  });
  return record(
      "matmul", c, {a, b},
      [a = a.value(), b = b.value(), shares_a](const Tensor& dc, std::span<GradSlot> slots) {
        on(dc.stream(), [&](auto& s) {
          const View gradient = as_batch(dc.view());
          if (slots[0].wanted() && shares_a) {
            const std::int64_t batch = gradient.shape[0];
            const Tensor parts = Tensor::empty({batch, a.shape()[0], a.shape()[1]}, a.dtype(), a.context());
            kernels::matmul(s, gradient, as_batch(b.view()), GradView(parts.view()), {.transpose_b = true});
            kernels::sum_rows(s, parts.reshape({batch, a.numel()}).view(), slots[0].claim());
          } else if (slots[0].wanted()) {
            kernels::matmul(s, gradient, as_batch(b.view()), as_batch(slots[0].claim()),
                            {.transpose_b = true});
          }
          if (slots[1].wanted())
            kernels::matmul(s, as_batch(a.view()), gradient, as_batch(slots[1].claim()),
                            {.transpose_a = true});
        });
      },
      detail::gemm_cost(2 * c.numel() * left[-1], a, b, c));
}

}  // namespace

// c = a b      da = dc b^T      db = a^T dc
Variable matmul(const Variable& a, const Variable& b) {
  detail::check_floating("matmul", a);
  detail::check_alike("matmul", a, b);
  check(a.shape().rank() >= 2, "matmul: left factor {} has {} dimensions, expected at least 2",
        a.shape().text(), a.shape().rank());
  check(b.shape().rank() >= 2, "matmul: right factor {} has {} dimensions, expected at least 2",
        b.shape().text(), b.shape().rank());
  check(a.shape()[-1] == b.shape()[-2], "matmul: {} times {}: inner sizes differ", a.shape().text(),
        b.shape().text());
  if (a.shape().rank() > 2 || b.shape().rank() > 2) return batched_matmul(a, b);
  const detail::OpScope scope("matmul", a, b);
  Tensor c = Tensor::empty({a.shape()[0], b.shape()[1]}, a.dtype(), detail::result_context(a, b));
  on(c.stream(),
     [&](auto& s) { kernels::matmul(s, a.value().view(), b.value().view(), GradView(c.view())); });
  return record(
      "matmul", c, {a, b},
      [a = a.value(), b = b.value()](const Tensor& dc, std::span<GradSlot> slots) {
        on(dc.stream(), [&](auto& s) {
          if (slots[0].wanted())
            kernels::matmul(s, dc.view(), b.view(), slots[0].claim(), {.transpose_b = true});
          if (slots[1].wanted())
            kernels::matmul(s, a.view(), dc.view(), slots[1].claim(), {.transpose_a = true});
        });
      },
      detail::gemm_cost(2 * c.numel() * a.shape()[1], a, b, c));
}

// y = x w^T + b      dx = g w      dw = g^T x      db = column sums of g
// with g = dy, or 0 where y <= 0 if the op ends in a ReLU.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, bool with_relu) {
  detail::check_floating("linear", x);
  detail::check_alike("linear", x, weight);
  check(x.shape().rank() >= 2, "linear: input {} has {} dimensions, expected at least 2", x.shape().text(),
        x.shape().rank());
  detail::check_rank("linear", "weight", weight.shape(), 2);
  check(x.shape()[-1] == weight.shape()[1], "linear: input {} has {} features, weight {} expects {}",
        x.shape().text(), x.shape()[-1], weight.shape().text(), weight.shape()[1]);
  if (bias.defined()) detail::check_vector("linear", "bias", bias, x, weight.shape()[0]);

  if (x.shape().rank() > 2) {  // the same weight for all rows: one GEMM
    const Shape result = with_matrix(x.shape(), x.shape()[-2], weight.shape()[0]);
    const std::int64_t rows = product_of(x.shape(), 0, x.shape().rank() - 1);
    return reshape(linear(reshape(x, {rows, x.shape()[-1]}), weight, bias, with_relu), result);
  }
  const detail::OpScope scope("linear", x, weight, bias);
  Tensor y =
      Tensor::empty({x.shape()[0], weight.shape()[0]}, x.dtype(), detail::result_context(x, weight, bias));
  on(y.stream(), [&](auto& s) {
    kernels::linear_forward(s, x.value().view(), weight.value().view(),
                            bias.defined() ? bias.value().view() : View{}, y.view(), with_relu);
  });
  const int passes = (with_relu ? 3 : 0) + (bias.requires_grad() ? 1 : 0);
  return record("linear", y, detail::defined_of({x, weight, bias}),
                [x = x.value(), w = weight.value(), y = with_relu ? y : Tensor()](const Tensor& dy,
                                                                                  std::span<GradSlot> slots) {
                  const Tensor g = detail::before_bias(dy, y, slots.size() > 2 ? slots[2] : GradSlot());
                  on(dy.stream(), [&](auto& s) {
                    if (slots[0].wanted()) kernels::matmul(s, g.view(), w.view(), slots[0].claim());
                    if (slots[1].wanted())
                      kernels::matmul(s, g.view(), x.view(), slots[1].claim(), {.transpose_a = true});
                  });
                },
                detail::gemm_cost(2 * y.numel() * x.shape()[1], x, weight, y, passes), {{"relu", with_relu}});
}

}  // namespace convoy
