// Every copy is a kernels::strided_copy over an index space, and its gradient is the copy
// with source and target exchanged.
#include "convoy/engine/ops/ops.h"

#include "convoy/engine/ops/detail.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/named_range.h"
#include "convoy/kernels/strided_copy.h"

namespace convoy {
namespace {

using kernels::Strides;

std::size_t index(int axis) { return static_cast<std::size_t>(axis); }

void copy(const Shape& space, const Tensor& x, const Strides& x_strides, GradView y,
          const Strides& y_strides) {
  on(x.stream(), [&](auto& s) { kernels::strided_copy(s, space, x.view(), x_strides, y, y_strides); });
}

OpCost cost_of_copy(const Tensor& y) {
  const Cost pass{.bytes = 2 * detail::bytes_of(y)};
  return {.forward = pass, .backward = pass};
}

/// Copies the elements of x at `strides`, over an index space, to a result of the shape `shape`. If `is_partial`, they are
/// not all elements of x.
Variable copied(const char* name, const Variable& x, const Shape& space, const Strides& strides,
                const Shape& shape, bool is_partial, std::vector<OpAttribute> attributes) {
  const detail::OpScope scope(name, x);
  Tensor y = Tensor::empty(shape, x.dtype(), x.context());
  copy(space, x.value(), strides, GradView(y.view()), Strides::row_major(space));
  return record(
      name, y, {x},
      [space, strides, is_partial](const Tensor& dy, std::span<GradSlot> dx) {
        const GradView to = dx[0].claim();
        if (is_partial && to.mode == GradMode::overwrite)
          on(dy.stream(), [&](auto& s) { kernels::fill(s, 0, to); });
        copy(space, dy, Strides::row_major(space), to, strides);
      },
      cost_of_copy(y), std::move(attributes));
}

}  // namespace

Variable permute(const Variable& x, std::initializer_list<int> axes) {
  return permute(x, std::span<const int>(axes.begin(), axes.size()));
}

Variable permute(const Variable& x, std::span<const int> axes) {
  detail::check_floating("permute", x);
  const Shape& from = x.shape();
  check(std::ssize(axes) == from.rank(), "permute: found {} axes for {}, expected {}", axes.size(),
        from.text(), from.rank());
  detail::Sizes sizes(from);
  const Strides whole = Strides::row_major(from);
  Strides strides;
  std::array<bool, Shape::kMaxRank> seen{};
  std::vector<std::int64_t> positions;
  for (int i = 0; i < from.rank(); ++i) {
    const int axis = detail::axis_of("permute", axes[index(i)], from);
    check(!seen[index(axis)], "permute: found axis {} twice, expected each axis of {} once", axis,
          from.text());
    seen[index(axis)] = true;
    positions.push_back(axis);
    sizes[i] = from[axis];
    strides.of_axis[index(i)] = whole.of_axis[index(axis)];
  }
  return copied("permute", x, sizes.shape(), strides, sizes.shape(), false, {{"axes", std::move(positions)}});
}

Variable transpose(const Variable& x, int axis_a, int axis_b) {
  std::vector<int> axes;
  for (int axis = 0; axis < x.shape().rank(); ++axis) axes.push_back(axis);
  std::swap(axes[index(detail::axis_of("transpose", axis_a, x.shape()))],
            axes[index(detail::axis_of("transpose", axis_b, x.shape()))]);
  return permute(x, axes);
}

Variable squeeze(const Variable& x, int axis) {
  axis = detail::axis_of("squeeze", axis, x.shape());
  check(x.shape()[axis] == 1, "squeeze: found size {} of axis {} of {}, expected 1", x.shape()[axis], axis,
        x.shape().text());
  detail::Sizes sizes(x.shape());
  sizes.erase(axis);
  return reshape(x, sizes.shape());
}

Variable unsqueeze(const Variable& x, int axis) {
  detail::Sizes sizes(x.shape());
  sizes.insert(detail::axis_of("unsqueeze", axis, x.shape(), x.shape().rank() + 1), 1);
  return reshape(x, sizes.shape());
}

Variable broadcast_to(const Variable& x, const Shape& shape) {
  detail::check_floating("broadcast_to", x);
  check(detail::broadcast_shape("broadcast_to", x.shape(), shape) == shape,
        "broadcast_to: found {}, expected a shape that {} can be repeated to", shape.text(),
        x.shape().text());
  const detail::OpScope scope("broadcast_to", x);
  Tensor y = Tensor::empty(shape, x.dtype(), x.context());
  copy(shape, x.value(), Strides::broadcast(x.shape(), shape), GradView(y.view()), Strides::row_major(shape));
  return record(
      "broadcast_to", y, {x},
      [from = x.shape()](const Tensor& dy, std::span<GradSlot> dx) { detail::contribute(dy, from, dx[0]); },
      cost_of_copy(y));
}

Variable sum_to(const Variable& x, const Shape& shape) {
  detail::check_floating("sum_to", x);
  check(detail::broadcast_shape("sum_to", x.shape(), shape) == x.shape(),
        "sum_to: found {}, expected a shape that can be repeated to {}", shape.text(), x.shape().text());
  const detail::OpScope scope("sum_to", x);
  Tensor y = Tensor::empty(shape, x.dtype(), x.context());
  GradView to(y.view());
  to.shape = detail::padded_shape(shape, x.shape().rank());
  on(y.stream(), [&](auto& s) { kernels::sum_axes(s, x.value().view(), 1, to); });
  return record("sum_to", y, {x},
                [space = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  copy(space, dy, Strides::broadcast(dy.shape(), space), dx[0].claim(),
                       Strides::row_major(space));
                },
                {.forward = detail::cost_of(x, {.flops = 1, .reads = 1}),
                 .backward = detail::cost_of(x, {.writes = 1})});
}

Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  detail::check_floating("slice", x);
  axis = detail::axis_of("slice", axis, x.shape());
  const std::int64_t size = x.shape()[axis];
  const std::int64_t first = begin < 0 ? begin + size : begin, last = end < 0 ? end + size : end;
  check(0 <= first && first <= last && last <= size && step >= 1,
        "slice: found begin {}, end {} and step {} for axis {} of {}, expected positions in order within {} "
        "elements and a step of at least 1",
        begin, end, step, axis, x.shape().text(), size);
  detail::Sizes sizes(x.shape());
  sizes[axis] = (last - first + step - 1) / step;
  Strides strides = Strides::row_major(x.shape());
  strides.offset = first * strides.of_axis[index(axis)];
  strides.of_axis[index(axis)] *= step;
  return copied("slice", x, sizes.shape(), strides, sizes.shape(), true,
                {{"range", std::vector{first, last, std::int64_t{axis}, step}}});
}

std::vector<Variable> chunk(const Variable& x, int parts, int axis) {
  const std::int64_t size = x.shape()[detail::axis_of("chunk", axis, x.shape())];
  check(parts >= 1 && size % parts == 0, "chunk: found {} parts of axis {} of {}, expected a divisor of {}",
        parts, axis, x.shape().text(), size);
  std::vector<Variable> chunks;
  for (int i = 0; i < parts; ++i)
    chunks.push_back(slice(x, axis, i * (size / parts), (i + 1) * (size / parts)));
  return chunks;
}

Variable concat(const std::vector<Variable>& inputs, int axis) {
  check(!inputs.empty(), "concat: found no inputs, expected at least one");
  const Variable& first = inputs.front();
  detail::check_floating("concat", first);
  axis = detail::axis_of("concat", axis, first.shape());
  detail::Sizes sizes(first.shape());
  const DeviceContext* context = &first.context();
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const Variable& x = inputs[i];
    detail::check_alike("concat", first, x);
    bool fits = x.shape().rank() == first.shape().rank();
    for (int a = 0; fits && a < first.shape().rank(); ++a)
      fits = a == axis || x.shape()[a] == first.shape()[a];
    check(fits, "concat: found the shapes {} and {}, expected equal sizes but for axis {}",
          first.shape().text(), x.shape().text(), axis);
    sizes[axis] += x.shape()[axis];
    if (x.context().kind() == DeviceKind::meta) context = &x.context();
  }
  const NamedRange range("concat");
  Tensor y = Tensor::empty(sizes.shape(), first.dtype(), *context);
  Strides part = Strides::row_major(y.shape());
  std::vector<Strides> parts;
  std::vector<Shape> shapes;
  for (const Variable& x : inputs) {
    wait_ready(x);
    if (context->kind() != DeviceKind::meta)
      copy(x.shape(), x.value(), Strides::row_major(x.shape()), GradView(y.view()), part);
    parts.push_back(part);
    shapes.push_back(x.shape());
    part.offset += x.shape()[axis] * part.of_axis[index(axis)];
  }
  return record("concat", y, inputs,
                [parts, shapes](const Tensor& dy, std::span<GradSlot> slots) {
                  for (std::size_t i = 0; i < parts.size(); ++i)
                    if (slots[i].wanted())
                      copy(shapes[i], dy, parts[i], slots[i].claim(), Strides::row_major(shapes[i]));
                },
                cost_of_copy(y), {{"axis", axis}});
}

Variable stack(const std::vector<Variable>& inputs, int axis) {
  check(!inputs.empty(), "stack: found no inputs, expected at least one");
  const Shape& shape = inputs.front().shape();
  axis = detail::axis_of("stack", axis, shape, shape.rank() + 1);
  std::vector<Variable> parts;
  for (const Variable& x : inputs) {
    check(x.shape() == shape, "stack: found the shapes {} and {}, expected equal ones", shape.text(),
          x.shape().text());
    parts.push_back(unsqueeze(x, axis));
  }
  return concat(parts, axis);
}

namespace {

/// Checks the arguments of pad(). Returns the shape of its result.
Shape check_padding(const Variable& x, const std::vector<Padding>& padding) {
  detail::check_floating("pad", x);
  check(std::ssize(padding) == x.shape().rank(), "pad: found {} paddings for {}, expected one per axis",
        padding.size(), x.shape().text());
  detail::Sizes sizes(x.shape());
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const Padding& around = padding[index(axis)];
    check(around.before >= 0 && around.after >= 0,
          "pad: found {} and {} elements around axis {}, expected at least 0", around.before, around.after,
          axis);
    sizes[axis] += around.before + around.after;
  }
  return sizes.shape();
}

}  // namespace

Variable pad(const Variable& x, const std::vector<Padding>& padding, double value) {
  const Shape shape = check_padding(x, padding);
  std::vector<std::int64_t> around;
  for (const Padding& one : padding) around.insert(around.end(), {one.before, one.after});
  const detail::OpScope scope("pad", x);
  Tensor y = Tensor::full(shape, value, x.dtype(), x.context());
  Strides inside = Strides::row_major(y.shape());
  for (int axis = 0; axis < x.shape().rank(); ++axis)
    inside.offset += padding[index(axis)].before * inside.of_axis[index(axis)];
  copy(x.shape(), x.value(), Strides::row_major(x.shape()), GradView(y.view()), inside);
  return record("pad", y, {x},
                [inside, shape = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  copy(shape, dy, inside, dx[0].claim(), Strides::row_major(shape));
                },
                cost_of_copy(y), {{"padding", std::move(around)}, {"value", value}});
}

namespace {

/// Returns the position in an axis of what is at position i, which may be outside.
std::int64_t position_of(std::int64_t i, std::int64_t size, PaddingMode mode) {
  if (mode == PaddingMode::replicate) return std::clamp<std::int64_t>(i, 0, size - 1);
  if (mode == PaddingMode::circular) return (i + size) % size;
  return i < 0 ? -i : std::min(i, 2 * (size - 1) - i);
}

/// Pads one axis with elements of x. Copies x, then each row of the padding: gradients of several may go to one row.
/// The attribute has the position in x of each row of the result.
Variable pad_axis(const Variable& x, int axis, const Padding& around, PaddingMode mode) {
  const std::int64_t size = x.shape()[axis];
  detail::Sizes sizes(x.shape());
  sizes[axis] += around.before + around.after;
  std::vector<std::int64_t> positions;
  for (std::int64_t i = -around.before; i < size + around.after; ++i)
    positions.push_back(position_of(i, size, mode));
  const auto for_each_copy = [=, from = x.shape(), to = sizes.shape(),
                              before = around.before](const auto& f) {
    for (std::int64_t k = 0; k <= to[axis] - size; ++k) {
      const std::int64_t at = k == 0 ? before : k <= before ? k - 1 : k + size - 1;
      detail::Sizes space(from);
      if (k > 0) space[axis] = 1;
      Strides x_strides = Strides::row_major(from), y_strides = Strides::row_major(to);
      x_strides.offset = positions[index(static_cast<int>(at))] * x_strides.of_axis[index(axis)];
      y_strides.offset = at * y_strides.of_axis[index(axis)];
      f(space.shape(), x_strides, y_strides);
    }
  };
  const detail::OpScope scope("pad_axis", x);
  Tensor y = Tensor::empty(sizes.shape(), x.dtype(), x.context());
  for_each_copy([&](const Shape& space, const Strides& from, const Strides& to) {
    copy(space, x.value(), from, GradView(y.view()), to);
  });
  return record("pad_axis", y, {x},
                [for_each_copy](const Tensor& dy, std::span<GradSlot> slots) {
                  GradView dx = slots[0].claim();
                  for_each_copy([&](const Shape& space, const Strides& to, const Strides& from) {
                    copy(space, dy, from, dx, to);
                    dx.mode = GradMode::accumulate;
                  });
                },
                cost_of_copy(y), {{"axis", axis}, {"positions", positions}});
}

}  // namespace

Variable pad(const Variable& x, const std::vector<Padding>& padding, PaddingMode mode) {
  if (mode == PaddingMode::zeros) return pad(x, padding);
  check_padding(x, padding);
  Variable y = x;
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const auto [before, after] = padding[index(axis)];
    const std::int64_t size = x.shape()[axis], longest = std::max(before, after);
    const std::int64_t limit = mode == PaddingMode::reflect ? size - 1 : size;
    check(longest == 0 || (size > 0 && (mode == PaddingMode::replicate || longest <= limit)),
          "pad: found {} and {} elements around axis {} of {}, expected at most {} of this mode", before,
          after, axis, x.shape().text(), limit);
    if (longest > 0) y = pad_axis(y, axis, {before, after}, mode);
  }
  return y;
}

Variable reshape(const Variable& x, const Shape& shape) {
  const detail::OpScope scope("reshape", x);
  return record("reshape", x.value().reshape(shape), {x},
                [from = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].alias_or_accumulate(dy.reshape(from));
                });
}

Variable flatten(const Variable& x) {
  const Shape& shape = x.shape();
  check(shape.rank() >= 2, "flatten: input {}, expected [N, …] with at least two dimensions", shape.text());
  const Shape flat{shape[0], detail::product_of(shape, 1, shape.rank())};  // not numel / N: N may be 0
  const bool is_image = shape.rank() == 4 && shape[1] * shape[2] > 1 && shape[3] > 1;
  if (!is_image) return reshape(x, flat);  // NHWC and NCHW order are the same bytes

  detail::check_floating("flatten", x);
  const Shape nchw{shape[0], shape[3], shape[1], shape[2]};
  const Strides whole = Strides::row_major(shape);
  Strides strides;
  for (std::size_t axis = 0; axis < 4; ++axis)
    strides.of_axis[axis] = whole.of_axis[std::array<std::size_t, 4>{0, 3, 1, 2}[axis]];
  return copied("flatten", x, nchw, strides, flat, false, {});
}

}  // namespace convoy
