// What the ops share: checks of arguments, which throw UsageError, axes, broadcasting, costs, and the
// gradient of a fused bias. Private to engine/ops.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "convoy/engine/autograd/variable.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/size2d.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/broadcast.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy::detail {

/// Names an op in profiles for the lifetime of the object, and waits until the inputs of the op are complete.
class OpScope {
 public:
  template <class... Inputs>
  explicit OpScope(std::string_view op, const Inputs&... inputs) : range_(op) {
    wait_ready(inputs...);
  }

 private:
  NamedRange range_;
};

inline void check_floating(std::string_view op, const Variable& x) {
  check(is_floating(x.dtype()), "{}: input is {} {}, expected floating point", op, to_string(x.dtype()),
        x.shape().text());
}

inline void check_rank(std::string_view op, std::string_view what, const Shape& shape, int rank) {
  check(shape.rank() == rank, "{}: {} {} has {} dimensions, expected {}", op, what, shape.text(),
        shape.rank(), rank);
}

/// Checks that the input is images [N, H, W, C] of floating point, with pixels. N may be 0.
inline void check_images(std::string_view op, const Variable& x) {
  check_floating(op, x);
  check_rank(op, "input", x.shape(), 4);
  check(x.shape()[1] > 0 && x.shape()[2] > 0, "{}: input {} has images without pixels, expected at least one",
        op, x.shape().text());
}

/// Returns whether an op may combine tensors on these devices: equal ones, or any device with the meta
/// device.
inline bool can_combine(Device a, Device b) {
  return a == b || a.kind == DeviceKind::meta || b.kind == DeviceKind::meta;
}

/// Returns the context of an op's result: the meta device if an input is there, else that of the first input.
/// Inputs are Variables or Tensors, and all but the first may be undefined.
template <class First, class... Others>
const DeviceContext& result_context(const First& first, const Others&... others) {
  const DeviceContext* result = &first.context();
  const auto visit = [&](const auto& input) {
    if (input.defined() && input.context().kind() == DeviceKind::meta) result = &input.context();
  };
  (visit(others), ...);
  return *result;
}

/// Checks that two arguments of an op have the same element type, and devices that it may combine.
inline void check_alike(std::string_view op, const Variable& x, const Variable& y) {
  check(x.dtype() == y.dtype(), "{}: element types of {} {} and {} {} differ", op, to_string(x.dtype()),
        x.shape().text(), to_string(y.dtype()), y.shape().text());
  check(can_combine(x.device(), y.device()), "{}: one input is on {}, the other on {}", op,
        x.context().name(), y.context().name());
}

inline void check_same_shape(std::string_view op, const Variable& x, const Variable& y) {
  check_alike(op, x, y);
  check(x.shape() == y.shape(), "{}: shapes {} and {} differ", op, x.shape().text(), y.shape().text());
}

/// Checks a bias: [size], with the element type of x and a device like that of x.
inline void check_vector(std::string_view op, std::string_view what, const Variable& vector,
                         const Variable& x, std::int64_t size) {
  check_alike(op, x, vector);
  check(vector.shape() == Shape{size}, "{}: {} {}, expected [{}]", op, what, vector.shape().text(), size);
}

/// Checks that an argument without a gradient, such as labels or a mask, has this type and shape, and a
/// device like that of x.
inline void check_array(std::string_view op, std::string_view what, const Tensor& array, DType dtype,
                        const Shape& shape, const Variable& x) {
  check(array.defined() && array.dtype() == dtype && array.shape() == shape, "{}: {} {} {}, expected {} {}",
        op, what, array.defined() ? to_string(array.dtype()) : "undefined",
        array.defined() ? array.shape().text() : "", to_string(dtype), shape.text());
  check(can_combine(array.device(), x.device()), "{}: {} are on {}, expected {} as the input", op, what,
        array.context().name(), x.context().name());
}

/// Makes an attribute of a recorded op from the numbers of rows and columns.
inline OpAttribute attribute(std::string_view name, Size2d size) {
  return {name, std::vector<std::int64_t>{size.height, size.width}};
}

/// A backward function of an operation whose result is cheap to compute again from what the function holds. The operations
/// that use the result may then save `recompute` for their own backward functions instead of the result.
struct RecomputableBackward {
  Node::Backward backward;
  /// Enqueues the computation of the result to `y`, with the same bits as in the forward pass.
  std::function<void(const Stream& stream, const Tensor& y)> recompute;

  void operator()(const Tensor& dy, std::span<GradSlot> slots) const { backward(dy, slots); }
};

/// Returns those of the inputs of an op that are defined.
inline std::vector<Variable> defined_of(std::initializer_list<Variable> inputs) {
  std::vector<Variable> all = inputs;
  std::erase_if(all, [](const Variable& input) { return !input.defined(); });
  return all;
}

// ---- Axes as arguments ----

/// Returns `axis`, counted from the first one, of `rank` axes. Throws UsageError if there is no such axis.
inline int axis_of(std::string_view op, int axis, const Shape& shape, int rank) {
  check(rank > 0, "{}: found axis {} for a scalar, which has no axes", op, axis);
  check(axis >= -rank && axis < rank, "{}: found axis {} for {}, expected {} to {}", op, axis, shape.text(),
        -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}
inline int axis_of(std::string_view op, int axis, const Shape& shape) {
  return axis_of(op, axis, shape, shape.rank());
}

/// The sizes of a shape, for changes axis by axis.
class Sizes {
 public:
  explicit Sizes(const Shape& shape) : rank_(shape.rank()) {
    for (int axis = 0; axis < rank_; ++axis) (*this)[axis] = shape[axis];
  }
  std::int64_t& operator[](int axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  void insert(int axis, std::int64_t size) {
    for (int i = rank_++; i > axis; --i) (*this)[i] = (*this)[i - 1];
    (*this)[axis] = size;
  }
  void erase(int axis) {
    --rank_;
    for (int i = axis; i < rank_; ++i) (*this)[i] = (*this)[i + 1];
  }
  Shape shape() const {
    return Shape(std::span<const std::int64_t>(sizes_.data(), static_cast<std::size_t>(rank_)));
  }

 private:
  std::array<std::int64_t, Shape::kMaxRank + 1> sizes_{};  // Shape refuses one more than its maximum
  int rank_;
};

/// Returns the product of the sizes of the axes [begin, end).
inline std::int64_t product_of(const Shape& shape, int begin, int end) {
  std::int64_t product = 1;
  for (int axis = begin; axis < end; ++axis) product *= shape[axis];
  return product;
}

/// Returns a view of all matrices as [batch, rows, columns]; of an array with at most two axes as it is.
template <class AnyView>
AnyView as_batch(AnyView view) {
  const int rank = view.shape.rank();
  if (rank > 2) view.shape = Shape{product_of(view.shape, 0, rank - 2), view.shape[-2], view.shape[-1]};
  return view;
}

// ---- Broadcasting ----

/// Returns the shape to which both shapes are broadcast. Throws UsageError if there is none.
inline Shape broadcast_shape(std::string_view op, const Shape& x, const Shape& y) {
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  const int rank = x.rank() > y.rank() ? x.rank() : y.rank();
  for (int axis = 1; axis <= rank; ++axis) {  // from the last axis
    const std::int64_t from_x = axis <= x.rank() ? x[-axis] : 1, from_y = axis <= y.rank() ? y[-axis] : 1;
    check(from_x == from_y || from_x == 1 || from_y == 1,
          "{}: found the shapes {} and {}, expected sizes that are equal or 1 along each axis", op, x.text(),
          y.text());
    sizes[static_cast<std::size_t>(rank - axis)] = from_x == 1 ? from_y : from_x;
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank)));
}

/// Returns `shape` with leading axes of size 1, so that it has `rank` axes.
inline Shape padded_shape(const Shape& shape, int rank) {
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  sizes.fill(1);
  for (int axis = 1; axis <= shape.rank(); ++axis)
    sizes[static_cast<std::size_t>(rank - axis)] = shape[-axis];
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank)));
}

/// Contributes `gradient`, which has the shape of the result, to an operand of shape `operand` that was
/// broadcast: sums over the repetitions.
inline void contribute(const Tensor& gradient, const Shape& operand, GradSlot& slot) {
  if (!slot.wanted()) return;
  if (operand == gradient.shape()) return slot.alias_or_accumulate(gradient);
  GradView to = slot.claim();
  to.shape = padded_shape(operand, gradient.shape().rank());
  on(gradient.stream(), [&](auto& s) { kernels::sum_axes(s, gradient.view(), 1, to); });
}

/// As contribute(), for a gradient that `compute(stream, to)` writes to an array of the shape of `dz`.
template <class F>
void contribute_computed(const Tensor& dz, const Shape& operand, GradSlot& slot, F compute) {
  if (!slot.wanted()) return;
  if (operand == dz.shape()) return on(dz.stream(), [&](auto& s) { compute(s, slot.claim()); });
  const Tensor gradient = Tensor::empty_like(dz);
  on(dz.stream(), [&](auto& s) { compute(s, GradView(gradient.view())); });
  contribute(gradient, operand, slot);
}

/// Returns x op y. The gradient of an operand is computed from dz, the operand and the other one.
Variable binary_op(std::string_view name, kernels::BinaryOp op, kernels::BinaryGradient by_x,
                   kernels::BinaryGradient by_y, const Variable& x, const Variable& y);

// ---- The cost of an op. bench/README.md, "What is counted", has the rules ----

/// The work on each element of an array: operations, arrays read and arrays written.
struct PerElement {
  std::int64_t flops = 0, reads = 0, writes = 0;
};

/// Returns the cost of passes over arrays of the shape and the element type of x.
inline Cost cost_of(const Variable& x, PerElement work) {
  const std::int64_t n = x.shape().numel();
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  return {.flops = n * work.flops, .bytes = n * (work.reads + work.writes) * size};
}

/// Returns the bytes of one array of the shape and the element type of x.
inline std::int64_t bytes_of(const Tensor& x) { return static_cast<std::int64_t>(x.bytes()); }
inline std::int64_t bytes_of(const Variable& x) { return cost_of(x, {.reads = 1}).bytes; }

/// Returns the cost of an op c = a * b of `flops` operations, a GEMM or a convolution, and of the gradients
/// of the factors that require one. Each of the three computations reads two of the arrays and writes the
/// third. Backward makes `passes` more passes over dc: one to sum it for a bias, three for a fused ReLU
/// (which reads dc and c, and writes the gradient in front of it). The forward fuses both.
inline OpCost gemm_cost(std::int64_t flops, const Variable& a, const Variable& b, const Tensor& c,
                        int passes = 0) {
  const std::int64_t bytes = bytes_of(a) + bytes_of(b) + bytes_of(c);
  const std::int64_t gradients = (a.requires_grad() ? 1 : 0) + (b.requires_grad() ? 1 : 0);
  return {.forward = {.flops = flops, .bytes = bytes},
          .backward = {.flops = gradients * flops, .bytes = gradients * bytes + passes * bytes_of(c)}};
}

/// Returns dy, or 0 where y <= 0: the gradient in front of the ReLU with the result y. An undefined y means
/// that there is no ReLU: returns dy. Contributes the sums of its rows to `bias`, if the bias wants a
/// gradient.
inline Tensor before_bias(const Tensor& dy, const Tensor& y, GradSlot bias) {
  const Tensor g = y.defined() ? Tensor::empty_like(dy) : dy;
  on(dy.stream(), [&](auto& s) {
    if (y.defined()) {
      kernels::relu_bias_backward(s, dy.view(), y.view(), g.view(), bias.claim());
    } else {
      kernels::sum_rows(s, dy.view(), bias.claim());
    }
  });
  return g;
}

}  // namespace convoy::detail
