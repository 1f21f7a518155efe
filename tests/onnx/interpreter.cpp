// The operators of ONNX as its specification defines them (https://onnx.ai/onnx/operators), on [N, C, H, W].
#include <algorithm>
#include <cmath>
#include <functional>
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

OnnxTensor unary(const OnnxTensor& x, double (*f)(double)) {
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

  explicit Window(const OnnxNode& node) {
    const Sizes &kernel = node.lists.at("kernel_shape"), &strides = node.lists.at("strides"),
                &pads = node.lists.at("pads");
    require(kernel.size() == 2 && strides.size() == 2 && pads.size() == 4, node.type + " is not of images");
    height = kernel[0], width = kernel[1], down = strides[0], right = strides[1];
    top = pads[0], left = pads[1], bottom = pads[2], end = pads[3];
  }
  Sizes result(const Sizes& x, std::int64_t channels) const {
    return {x[0], channels, (x[2] + top + bottom - height) / down + 1,
            (x[3] + left + end - width) / right + 1};
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
              const std::int64_t h = row * window.down + i - window.top;
              if (h < 0 || h >= height) continue;
              const std::int64_t channel = o / (out / groups) * depth + c;
              const double* const line = x.values.data() + ((n * x.shape[1] + channel) * height + h) * width;
              const double* const weights =
                  filter.values.data() + ((o * depth + c) * window.height + i) * window.width;
              for (std::int64_t j = 0; j < window.width; ++j) {
                const std::int64_t w = column * window.right + j - window.left;
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
  require(count_of(sizes) == x.values.size(), "Reshape: another number of elements");
  x.shape = sizes;
  return x;
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
    {"HardSwish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }}};
const std::map<std::string, double (*)(double, double)> kBinary = {
    {"Add", [](double a, double b) { return a + b; }},
    {"Sub", [](double a, double b) { return a - b; }},
    {"Mul", [](double a, double b) { return a * b; }},
    {"Div", [](double a, double b) { return a / b; }},
    {"Max", [](double a, double b) { return std::max(a, b); }},
    {"Min", [](double a, double b) { return std::min(a, b); }}};

OnnxTensor compute(const OnnxNode& node, const std::vector<const OnnxTensor*>& in) {
  const OnnxTensor* const third = in.size() > 2 ? in[2] : nullptr;
  if (const auto f = kUnary.find(node.type); f != kUnary.end()) return unary(*in.at(0), f->second);
  if (const auto f = kBinary.find(node.type); f != kBinary.end())
    return binary(*in.at(0), *in.at(1), f->second);
  if (node.type == "Conv") return conv(*in.at(0), *in.at(1), third, node);
  if (node.type == "Gemm") return gemm(*in.at(0), *in.at(1), third, node);
  if (node.type == "BatchNormalization") return batch_norm(in, node.floats.at("epsilon"));
  if (node.type == "GlobalAveragePool") return global_average(*in.at(0));
  if (node.type == "Reshape") return reshaped(*in.at(0), *in.at(1));
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
