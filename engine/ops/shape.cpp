#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/pool2d.h"

namespace convoy {

Variable reshape(const Variable& x, const Shape& shape) {
  wait_ready(x);
  return record("reshape", x.value().reshape(shape), {x},
                [from = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].alias_or_accumulate(dy.reshape(from));
                });
}

Variable flatten(const Variable& x) {
  const Shape& shape = x.shape();
  check(shape.rank() >= 2, "flatten: input {}, expected [N, …] with at least two dimensions", shape.text());
  std::int64_t rest = 1;  // not numel / N: N may be 0
  for (int axis = 1; axis < shape.rank(); ++axis) rest *= shape[axis];
  const Shape flat{shape[0], rest};
  const bool is_image = shape.rank() == 4 && shape[1] * shape[2] > 1 && shape[3] > 1;
  if (!is_image) return reshape(x, flat);  // NHWC and NCHW order are the same bytes

  detail::check_floating("flatten", x);
  const Shape nchw{shape[0], shape[3], shape[1], shape[2]};
  wait_ready(x);
  Tensor y = Tensor::empty(nchw, x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { kernels::nhwc_to_nchw(s, x.value().view(), GradView(y.view())); });
  const Cost copy = detail::cost_of(x, {.reads = 1, .writes = 1});
  return record("flatten", y.reshape(flat), {x},
                [nchw](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(),
                     [&](auto& s) { kernels::nchw_to_nhwc(s, dy.reshape(nchw).view(), dx[0].claim()); });
                },
                {.forward = copy, .backward = copy});
}

}  // namespace convoy
