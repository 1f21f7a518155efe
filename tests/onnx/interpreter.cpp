// The operators of ONNX as its specification defines them (https://onnx.ai/onnx/operators), on [N, C, H, W].
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "tests/onnx/onnx_file.h"

namespace convoy::testing {
namespace {

using Sizes = std::vector<std::int64_t>;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("onnx: " + what);
}

std::size_t count_of(const Sizes& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return static_cast<std::size_t>(count);
}

OnnxTensor make(const Sizes& shape) { return {shape, std::vector<double>(count_of(shape))}; }

OnnxTensor unary(const OnnxTensor& x, const std::function<double(double)>& f) {
  OnnxTensor y = x;
  std::transform(x.values.begin(), x.values.end(), y.values.begin(), f);
  return y;
}

/// Broadcasts as NumPy does.
OnnxTensor binary(const OnnxTensor& a, const OnnxTensor& b, double (*f)(double, double)) {
  const std::size_t rank = std::max(a.shape.size(), b.shape.size());
  Sizes left(rank - a.shape.size(), 1), right(rank - b.shape.size(), 1), shape(rank);
  left.insert(left.end(), a.shape.begin(), a.shape.end());
  right.insert(right.end(), b.shape.begin(), b.shape.end());
  for (std::size_t i = 0; i < rank; ++i) {
    require(left[i] == right[i] || left[i] == 1 || right[i] == 1, "operands do not fit");
    shape[i] = std::max(left[i], right[i]);
  }
  OnnxTensor y = make(shape);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    std::size_t rest = i, at_left = 0, at_right = 0, left_stride = 1, right_stride = 1;
    for (std::size_t axis = rank; axis-- > 0;) {
      const std::size_t position = rest % static_cast<std::size_t>(shape[axis]);
      rest /= static_cast<std::size_t>(shape[axis]);
      if (left[axis] > 1) at_left += position * left_stride;
      if (right[axis] > 1) at_right += position * right_stride;
      left_stride *= static_cast<std::size_t>(left[axis]);
      right_stride *= static_cast<std::size_t>(right[axis]);
    }
    y.values[i] = f(a.values[at_left], b.values[at_right]);
  }
  return y;
}

/// The windows of a convolution or of pooling.
struct Window {
  std::int64_t height, width, down, right, top, left, bottom, end;
  std::int64_t row_step = 1, column_step = 1;  // of the pixels of a window

  explicit Window(const OnnxNode& node) {
    const Sizes &kernel = node.lists.at("kernel_shape"), &strides = node.lists.at("strides"),
                &pads = node.lists.at("pads");
    require(kernel.size() == 2 && strides.size() == 2 && pads.size() == 4, node.type + " is not of images");
    height = kernel[0], width = kernel[1], down = strides[0], right = strides[1];
    top = pads[0], left = pads[1], bottom = pads[2], end = pads[3];
    if (const auto dilations = node.lists.find("dilations"); dilations != node.lists.end())
      row_step = dilations->second.at(0), column_step = dilations->second.at(1);
  }
  Sizes result(const Sizes& x, std::int64_t channels) const {
    return {x[0], channels, (x[2] + top + bottom - row_step * (height - 1) - 1) / down + 1,
            (x[3] + left + end - column_step * (width - 1) - 1) / right + 1};
  }
};

/// Calls f(plane of x, element of y, pixel row and column of the window's corner) for each element of y.
OnnxTensor pool(const OnnxTensor& x, const OnnxNode& node,
                const std::function<double(const std::vector<double>& inside, std::int64_t size)>& reduce) {
  const Window window(node);
  OnnxTensor y = make(window.result(x.shape, x.shape[1]));
  std::size_t next = 0;
  for (std::int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane)
    for (std::int64_t row = 0; row < y.shape[2]; ++row)
      for (std::int64_t column = 0; column < y.shape[3]; ++column) {
        std::vector<double> inside;
        for (std::int64_t i = 0; i < window.height; ++i)
          for (std::int64_t j = 0; j < window.width; ++j) {
            const std::int64_t h = row * window.down + i - window.top,
                               w = column * window.right + j - window.left;
            if (h >= 0 && h < x.shape[2] && w >= 0 && w < x.shape[3])
              inside.push_back(x.values[static_cast<std::size_t>((plane * x.shape[2] + h) * x.shape[3] + w)]);
          }
        y.values[next++] = reduce(inside, window.height * window.width);
      }
  return y;
}

OnnxTensor conv(const OnnxTensor& x, const OnnxTensor& filter, const OnnxTensor* bias, const OnnxNode& node) {
  const Window window(node);
  const std::int64_t groups = node.integers.at("group"), out = filter.shape[0], depth = filter.shape[1];
  require(x.shape.size() == 4 && filter.shape.size() == 4 && x.shape[1] == depth * groups &&
              out % groups == 0 && filter.shape[2] == window.height && filter.shape[3] == window.width,
          "Conv: shapes do not fit");
  OnnxTensor y = make(window.result(x.shape, out));
  const std::int64_t height = x.shape[2], width = x.shape[3];
  double* next = y.values.data();
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t row = 0; row < y.shape[2]; ++row)
        for (std::int64_t column = 0; column < y.shape[3]; ++column) {
          double sum = bias != nullptr ? bias->values[static_cast<std::size_t>(o)] : 0;
          for (std::int64_t c = 0; c < depth; ++c)
            for (std::int64_t i = 0; i < window.height; ++i) {
              const std::int64_t h = row * window.down + i * window.row_step - window.top;
              if (h < 0 || h >= height) continue;
              const std::int64_t channel = o / (out / groups) * depth + c;
              const double* const line = x.values.data() + ((n * x.shape[1] + channel) * height + h) * width;
              const double* const weights =
                  filter.values.data() + ((o * depth + c) * window.height + i) * window.width;
              for (std::int64_t j = 0; j < window.width; ++j) {
                const std::int64_t w = column * window.right + j * window.column_step - window.left;
                if (w >= 0 && w < width) sum += line[w] * weights[j];
              }
            }
          *next++ = sum;
        }
  return y;
}

OnnxTensor batch_norm(const std::vector<const OnnxTensor*>& in, double epsilon) {
  OnnxTensor y = *in[0];
  const auto channels = static_cast<std::size_t>(y.shape[1]);
  const std::size_t area = y.values.size() / channels / static_cast<std::size_t>(y.shape[0]);
  for (std::size_t i = 1; i < 5; ++i)
    require(in[i]->shape == Sizes{y.shape[1]}, "BatchNormalization: shapes");
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const std::size_t c = i / area % channels;
    y.values[i] =
        (y.values[i] - in[3]->values[c]) / std::sqrt(in[4]->values[c] + epsilon) * in[1]->values[c] +
        in[2]->values[c];
  }
  return y;
}

/// x w^T + bias.
OnnxTensor gemm(const OnnxTensor& x, const OnnxTensor& w, const OnnxTensor* bias, const OnnxNode& node) {
  require(node.integers.at("transB") == 1 && x.shape.size() == 2 && w.shape.size() == 2 &&
              x.shape[1] == w.shape[1],
          "Gemm: shapes do not fit");
  OnnxTensor y = make({x.shape[0], w.shape[0]});
  const std::size_t inner = static_cast<std::size_t>(x.shape[1]),
                    columns = static_cast<std::size_t>(w.shape[0]);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    double sum = bias != nullptr ? bias->values[i % columns] : 0;
    for (std::size_t k = 0; k < inner; ++k)
      sum += x.values[i / columns * inner + k] * w.values[i % columns * inner + k];
    y.values[i] = sum;
  }
  return y;
}

OnnxTensor global_average(const OnnxTensor& x) {
  OnnxTensor y = make({x.shape[0], x.shape[1], 1, 1});
  const std::size_t area = x.values.size() / y.values.size();
  for (std::size_t i = 0; i < x.values.size(); ++i)
    y.values[i / area] += x.values[i] / static_cast<double>(area);
  return y;
}

OnnxTensor flattened(OnnxTensor x, const OnnxNode& node) {
  require(node.integers.at("axis") == 1, "Flatten: another axis than 1");
  x.shape = {x.shape[0], static_cast<std::int64_t>(x.values.size()) / x.shape[0]};
  return x;
}

OnnxTensor reshaped(OnnxTensor x, const OnnxTensor& shape) {
  Sizes sizes;
  for (const double size : shape.values)
    sizes.push_back(size == 0 ? x.shape.at(sizes.size()) : static_cast<std::int64_t>(size));
  const std::int64_t rest =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{-1}, std::multiplies<>());
  for (std::int64_t& size : sizes)
    if (size == -1) size = static_cast<std::int64_t>(x.values.size()) / rest;
  require(count_of(sizes) == x.values.size(), "Reshape: another number of elements");
  x.shape = sizes;
  return x;
}

/// Returns a tensor of the given shape whose element at each position is that of x at from(position).
OnnxTensor moved(const OnnxTensor& x, const Sizes& shape,
                 const std::function<Sizes(const Sizes& position)>& from) {
  OnnxTensor y = make(shape);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Sizes position(shape.size());
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis])
      position[axis] = rest % shape[axis];
    const Sizes source = from(position);
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < x.shape.size(); ++axis) {
      require(source[axis] >= 0 && source[axis] < x.shape[axis], "a position outside of a tensor");
      at = at * x.shape[axis] + source[axis];
    }
    y.values[i] = x.values[static_cast<std::size_t>(at)];
  }
  return y;
}

OnnxTensor transposed(const OnnxTensor& x, const Sizes& axes) {
  require(axes.size() == x.shape.size(), "Transpose: another number of axes");
  Sizes shape;
  for (const std::int64_t axis : axes) shape.push_back(x.shape.at(static_cast<std::size_t>(axis)));
  return moved(x, shape, [&](const Sizes& position) {
    Sizes source(axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i) source[static_cast<std::size_t>(axes[i])] = position[i];
    return source;
  });
}

/// Inputs: x, begins, ends, axes, steps.
OnnxTensor sliced(const std::vector<const OnnxTensor*>& in) {
  require(in.size() == 5 && in[3]->values.size() == 1, "Slice: another number of inputs or axes");
  const auto number = [&](std::size_t i) { return static_cast<std::int64_t>(in[i]->values.at(0)); };
  const auto axis = static_cast<std::size_t>(number(3));
  Sizes shape = in[0]->shape;
  shape.at(axis) = (std::min(number(2), shape.at(axis)) - number(1) + number(4) - 1) / number(4);
  return moved(*in[0], shape, [&](Sizes position) {
    position[axis] = number(1) + position[axis] * number(4);
    return position;
  });
}

/// Inputs: x, the elements in front of all axes and those behind them, and maybe their value.
OnnxTensor padded(const std::vector<const OnnxTensor*>& in) {
  const OnnxTensor& x = *in.at(0);
  const std::vector<double>& pads = in.at(1)->values;
  require(pads.size() == 2 * x.shape.size(), "Pad: another number of axes");
  Sizes shape = x.shape;
  for (std::size_t i = 0; i < pads.size(); ++i)
    shape[i % x.shape.size()] += static_cast<std::int64_t>(pads[i]);
  OnnxTensor y = make(shape);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    std::size_t rest = i, source = 0, stride = 1;
    bool is_inside = true;
    for (std::size_t axis = shape.size(); axis-- > 0; rest /= static_cast<std::size_t>(shape[axis])) {
      const std::int64_t at =
          static_cast<std::int64_t>(rest) % shape[axis] - static_cast<std::int64_t>(pads[axis]);
      is_inside = is_inside && at >= 0 && at < x.shape[axis];
      if (is_inside) source += static_cast<std::size_t>(at) * stride;
      stride *= static_cast<std::size_t>(x.shape[axis]);
    }
    y.values[i] = is_inside ? x.values[source] : in.size() > 2 ? in[2]->values.at(0) : 0;
  }
  return y;
}

/// Inputs: x, and positions along an axis.
OnnxTensor gathered(const std::vector<const OnnxTensor*>& in, std::int64_t along) {
  const auto axis = static_cast<std::size_t>(along);
  require(in.size() == 2 && in[1]->shape.size() == 1, "Gather: positions of other axes than one");
  Sizes shape = in[0]->shape;
  shape.at(axis) = in[1]->shape[0];
  return moved(*in[0], shape, [&](Sizes position) {
    position[axis] = static_cast<std::int64_t>(in[1]->values.at(static_cast<std::size_t>(position[axis])));
    return position;
  });
}

OnnxTensor joined(const std::vector<const OnnxTensor*>& in, std::int64_t along) {
  const auto axis = static_cast<std::size_t>(along);
  Sizes shape = in[0]->shape;
  shape.at(axis) = 0;
  std::int64_t outer = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (const OnnxTensor* one : in) {
    require(one->shape.size() == shape.size(), "Concat: other numbers of axes");
    shape[axis] += one->shape[axis];
  }
  OnnxTensor y{shape, {}};
  for (std::int64_t i = 0; i < outer; ++i)
    for (const OnnxTensor* one : in) {
      const std::int64_t run = static_cast<std::int64_t>(one->values.size()) / outer;
      y.values.insert(y.values.end(), one->values.begin() + i * run, one->values.begin() + (i + 1) * run);
    }
  require(count_of(shape) == y.values.size(), "Concat: shapes do not fit");
  return y;
}

/// [..., M, K] times [..., K, N], where one of the factors may be a single matrix.
OnnxTensor multiplied(const OnnxTensor& a, const OnnxTensor& b) {
  const std::int64_t rows = a.shape.at(a.shape.size() - 2), inner = a.shape.back(), columns = b.shape.back();
  require(b.shape.at(b.shape.size() - 2) == inner, "MatMul: shapes do not fit");
  const OnnxTensor& larger = a.shape.size() >= b.shape.size() ? a : b;
  Sizes shape = larger.shape;
  shape[shape.size() - 2] = rows, shape.back() = columns;
  OnnxTensor y = make(shape);
  const std::int64_t matrices = static_cast<std::int64_t>(y.values.size()) / (rows * columns);
  const auto apart = [&](const OnnxTensor& x, std::int64_t size) {
    const auto count = static_cast<std::int64_t>(x.values.size()) / size;
    require(count == matrices || count == 1, "MatMul: other numbers of matrices");
    return count == 1 ? 0 : size;
  };
  const std::int64_t next_a = apart(a, rows * inner), next_b = apart(b, inner * columns);
  double* next = y.values.data();
  for (std::int64_t m = 0; m < matrices; ++m)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j, ++next)
        for (std::int64_t k = 0; k < inner; ++k)
          *next += a.values[static_cast<std::size_t>(m * next_a + i * inner + k)] *
                   b.values[static_cast<std::size_t>(m * next_b + k * columns + j)];
  return y;
}

/// Calls f(begin of a row, its size) for the last axes of the result.
OnnxTensor by_rows(OnnxTensor x, std::int64_t size,
                   const std::function<void(double* row, std::int64_t size)>& f) {
  for (std::size_t i = 0; i < x.values.size(); i += static_cast<std::size_t>(size))
    f(x.values.data() + i, size);
  return x;
}

void softmax_row(double* row, std::int64_t size) {
  const double largest = *std::max_element(row, row + size);
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (std::int64_t i = 0; i < size; ++i) row[i] /= sum;
}

OnnxTensor layer_norm(const std::vector<const OnnxTensor*>& in, const OnnxNode& node) {
  std::int64_t size = 1;
  for (std::size_t axis = static_cast<std::size_t>(node.integers.at("axis")); axis < in[0]->shape.size();
       ++axis)
    size *= in[0]->shape[axis];
  require(in.size() > 1 && static_cast<std::int64_t>(in[1]->values.size()) == size,
          "LayerNormalization: scale");
  return by_rows(*in[0], size, [&](double* row, std::int64_t count) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < count; ++i) mean += row[i] / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i)
      variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      row[i] = (row[i] - mean) / std::sqrt(variance + node.floats.at("epsilon")) * in[1]->values[at] +
               (in.size() > 2 ? in[2]->values.at(at) : 0);
    }
  });
}

OnnxTensor summed(const OnnxTensor& x, const OnnxTensor& axes, const OnnxNode& node) {
  require(node.integers.at("keepdims") == 1, "ReduceSum: removes axes");
  Sizes shape = x.shape;
  for (const double axis : axes.values) shape.at(static_cast<std::size_t>(axis)) = 1;
  OnnxTensor y = make(shape);
  moved(x, x.shape, [&](const Sizes& position) {
    std::size_t from = 0, to = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      from = from * static_cast<std::size_t>(x.shape[axis]) + static_cast<std::size_t>(position[axis]);
      to = to * static_cast<std::size_t>(shape[axis]) +
           static_cast<std::size_t>(shape[axis] == 1 ? 0 : position[axis]);
    }
    y.values[to] += x.values[from];
    return position;
  });
  return y;
}

const std::map<std::string, double (*)(double)> kUnary = {
    {"Identity", [](double x) { return x; }},
    {"Relu", [](double x) { return std::max(x, 0.0); }},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"Tanh", [](double x) { return std::tanh(x); }},
    {"Erf", [](double x) { return std::erf(x); }},
    {"Exp", [](double x) { return std::exp(x); }},
    {"Log", [](double x) { return std::log(x); }},
    {"Sqrt", [](double x) { return std::sqrt(x); }},
    {"Abs", [](double x) { return std::abs(x); }},
    {"Softplus", [](double x) { return std::log1p(std::exp(x)); }},
    {"HardSwish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }}};
const std::map<std::string, double (*)(double, double)> kBinary = {
    {"Add", [](double a, double b) { return a + b; }},
    {"Sub", [](double a, double b) { return a - b; }},
    {"Mul", [](double a, double b) { return a * b; }},
    {"Div", [](double a, double b) { return a / b; }},
    {"Pow", [](double a, double b) { return std::pow(a, b); }},
    {"Max", [](double a, double b) { return std::max(a, b); }},
    {"Min", [](double a, double b) { return std::min(a, b); }}};

OnnxTensor compute(const OnnxNode& node, const std::vector<const OnnxTensor*>& in) {
  const OnnxTensor* const third = in.size() > 2 ? in[2] : nullptr;
  if (const auto f = kUnary.find(node.type); f != kUnary.end()) return unary(*in.at(0), f->second);
  if (const auto f = kBinary.find(node.type); f != kBinary.end())
    return binary(*in.at(0), *in.at(1), f->second);
  if (node.type == "Clip")
    return unary(*in.at(0), [low = in.at(1)->values.at(0), high = third->values.at(0)](double x) {
      return std::clamp(x, low, high);
    });
  if (node.type == "LeakyRelu" || node.type == "Elu" || node.type == "HardSigmoid") {
    const double alpha = node.floats.at("alpha");
    return unary(*in.at(0), [&](double x) {
      if (node.type == "HardSigmoid") return std::clamp(alpha * x + 0.5, 0.0, 1.0);
      return x > 0 ? x : alpha * (node.type == "Elu" ? std::expm1(x) : x);
    });
  }
  if (node.type == "Conv") return conv(*in.at(0), *in.at(1), third, node);
  if (node.type == "Gemm") return gemm(*in.at(0), *in.at(1), third, node);
  if (node.type == "BatchNormalization") return batch_norm(in, node.floats.at("epsilon"));
  if (node.type == "GlobalAveragePool") return global_average(*in.at(0));
  if (node.type == "Reshape") return reshaped(*in.at(0), *in.at(1));
  if (node.type == "Transpose") return transposed(*in.at(0), node.lists.at("perm"));
  if (node.type == "Slice") return sliced(in);
  if (node.type == "Pad") return padded(in);
  if (node.type == "Gather") return gathered(in, node.integers.at("axis"));
  if (node.type == "Concat") return joined(in, node.integers.at("axis"));
  if (node.type == "MatMul") return multiplied(*in.at(0), *in.at(1));
  if (node.type == "LayerNormalization") return layer_norm(in, node);
  if (node.type == "ReduceSum") return summed(*in.at(0), *in.at(1), node);
  if (node.type == "Softmax" || node.type == "LogSoftmax") {
    require(node.integers.at("axis") == -1, node.type + ": another axis than the last");
    const OnnxTensor y = by_rows(*in.at(0), in.at(0)->shape.back(), softmax_row);
    return node.type == "Softmax" ? y : unary(y, [](double x) { return std::log(x); });
  }
  if (node.type == "Shape") {
    require(node.integers.at("start") == 0 && node.integers.at("end") == 1, "Shape: more than the batch");
    return {{1}, {static_cast<double>(in.at(0)->shape.at(0))}};
  }
  if (node.type == "Expand") {
    Sizes sizes;
    for (const double size : in.at(1)->values) sizes.push_back(static_cast<std::int64_t>(size));
    return binary(*in.at(0), make(sizes), [](double a, double) { return a; });
  }
  if (node.type == "Flatten") return flattened(*in.at(0), node);
  if (node.type == "MaxPool")
    return pool(*in.at(0), node, [](const std::vector<double>& inside, std::int64_t) {
      return *std::max_element(inside.begin(), inside.end());
    });
  if (node.type == "AveragePool")
    return pool(*in.at(0), node, [&](const std::vector<double>& inside, std::int64_t size) {
      double sum = 0;
      for (const double value : inside) sum += value;
      const bool counts_padding = node.integers.at("count_include_pad") == 1;
      return sum / static_cast<double>(counts_padding ? size : static_cast<std::int64_t>(inside.size()));
    });
  throw std::runtime_error("onnx: found operator " + node.type +
                           ", expected one that this interpreter computes");
}

}  // namespace

OnnxTensor run_onnx(const OnnxFile& file, const OnnxTensor& images) {
  std::map<std::string, OnnxTensor> values = {{"images", images}};
  const auto value_of = [&](const std::string& name) {
    const auto constant = file.constants.find(name);
    if (constant != file.constants.end()) return &constant->second;
    const auto found = values.find(name);
    require(found != values.end(), name + " is used before it is computed");
    return static_cast<const OnnxTensor*>(&found->second);
  };
  for (const OnnxNode& node : file.nodes) {
    std::vector<const OnnxTensor*> inputs;
    for (const std::string& input : node.inputs) inputs.push_back(value_of(input));
    require(node.outputs.size() == 1, node.type + " has several outputs");
    OnnxTensor y = compute(node, inputs);
    require(values.emplace(node.outputs[0], std::move(y)).second, node.outputs[0] + " is computed twice");
  }
  return *value_of("logits");
}

}  // namespace convoy::testing
