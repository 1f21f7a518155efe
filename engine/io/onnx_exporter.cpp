#include "convoy/engine/io/onnx_exporter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "convoy/engine/io/state_dict.h"

namespace convoy::io {
namespace {

/// Operations with one or two inputs of the shape of the result, and ONNX's name of them.
const std::map<std::string_view, const char*> kElementwise = {
    {"relu", "Relu"},   {"tanh", "Tanh"},   {"sigmoid", "Sigmoid"}, {"hardswish", "HardSwish"},
    {"exp", "Exp"},     {"log", "Log"},     {"sqrt", "Sqrt"},       {"abs", "Abs"},
    {"add", "Add"},     {"sub", "Sub"},     {"mul", "Mul"},         {"div", "Div"},
    {"maximum", "Max"}, {"minimum", "Min"}, {"pow", "Pow"}};

}  // namespace

OnnxExporter::OnnxExporter(nn::Module& network, const Variable& input, const std::string& input_name)
    : input_(input) {
  values_[nullptr] = {.images = input_name, .has_batch = true};
  for (const nn::NamedParameter& parameter : network.parameters()) {
    parameter.variable.wait_ready();
    tensors_[parameter.variable.value().view().data] = {parameter.name, parameter.kind};
  }
  for (const nn::NamedBuffer& buffer : network.buffers())
    tensors_[buffer.tensor.view().data] = {buffer.name, buffer.kind};
}

void OnnxExporter::add(const Variable& result) {
  node_ = result.creator().get();
  const bool has_batch =
      std::ranges::any_of(node_->inputs, [&](const Variable& x) { return depends_on_batch(x); });
  Value value = convert(result.shape(), has_batch);
  value.has_batch = has_batch;
  values_[node_] = std::move(value);
}

std::string OnnxExporter::in_order(const Variable& x, std::string Value::*wanted, std::string Value::*other,
                                   const std::vector<std::int64_t>& axes) {
  Value constant_value;
  if (is_constant(x)) constant_value.plain = constant(x);
  Value& value = is_constant(x) ? constant_value : values_.at(x.creator().get());
  if (x.shape().rank() != 4) return value.plain;
  if ((value.*wanted).empty()) value.*wanted = graph_.node("Transpose", {value.*other}, {{"perm", axes}});
  return value.*wanted;
}

std::string OnnxExporter::constant(const Tensor& tensor, nn::ParameterKind kind) {
  const bool is_filter = kind == nn::ParameterKind::filter;
  auto named = tensors_.find(tensor.view().data);
  if (named == tensors_.end()) {  // tensors of modules that are not registered get a number
    if (tensor.device().kind == DeviceKind::meta ||
        (tensor.shape().rank() > 0 && tensor.size(0) == kBatch && !is_filter))
      refuse(fmt::format("a constant {} of the size of the batch", tensor.shape().text()));
    const std::string name = fmt::format("tensor_{}", tensors_.size());
    named = tensors_.emplace(tensor.view().data, NamedTensor{name, kind}).first;
  }
  if (is_filter != (named->second.kind == nn::ParameterKind::filter))
    refuse("a filter in another place than of a layer");
  return graph_.constant(named->second.name, to_checkpoint(tensor, kind));
}

std::string OnnxExporter::constant(const Variable& leaf, nn::ParameterKind kind) {
  if (!leaf.is_leaf()) refuse("a computed parameter");
  return constant(leaf.value(), kind);
}

OnnxExporter::Value OnnxExporter::convert(const Shape& result, bool has_batch) {
  const std::string_view op = node_->name;
  if (op == "conv2d") return conv2d();
  if (op == "linear") return linear();
  if (op == "batch_norm") return batch_norm();
  if (op == "max_pool2d" || op == "avg_pool2d") return pool(result);
  if (op.starts_with("adaptive_"))
    refuse(fmt::format("windows of several sizes, from {}x{} to {}x{} pixels", shape(0)[1], shape(0)[2],
                       result[1], result[2]));
  if (op == "pad" || op == "pad_axis") return pad(has_batch);
  if (op == "global_avg_pool2d") return {.plain = flat(graph_.node("GlobalAveragePool", {images(input(0))}))};
  if (op == "flatten") return {.plain = flat(images(input(0)))};
  if (op == "reshape") return reshape(result, has_batch);
  if (op == "permute") {
    check_axis(attribute("axes").list[0] == 0 ? 1 : 0, has_batch);
    return {.plain = graph_.node("Transpose", {plain(input(0))}, {{"perm", attribute("axes").list}})};
  }
  if (op == "slice") {
    const std::vector<std::int64_t>& range = attribute("range").list;
    check_axis(range[2], has_batch);
    Names inputs = {plain(input(0))};
    for (const std::int64_t one : range) inputs.push_back(graph_.integers({one}));
    return {.plain = graph_.node("Slice", inputs)};
  }
  if (op == "concat") {
    check_axis(integer("axis"), has_batch);
    Names inputs;
    for (const Variable& one : node_->inputs) inputs.push_back(plain(one));
    return {.plain = graph_.node("Concat", inputs, {{"axis", integer("axis")}})};
  }
  if (op == "broadcast_to") return broadcast_to(result, has_batch);
  if (op == "sum_to") return sum_to(result, has_batch);
  if (op == "matmul") return {.plain = graph_.node("MatMul", {plain(input(0)), plain(input(1))})};
  if (op == "softmax" || op == "log_softmax")
    return {.plain = graph_.node(op == "softmax" ? "Softmax" : "LogSoftmax", {plain(input(0))},
                                 {{"axis", std::int64_t{-1}}})};
  if (op == "layer_norm") return layer_norm();
  if (op == "scaled_dot_product_attention") return attention();
  return elementwise(result);
}

OnnxExporter::Value OnnxExporter::elementwise(const Shape& result) {
  const auto fits = [](const Variable& x) { return x.shape().rank() == 4 || x.shape().numel() == 1; };
  const bool as_images = result.rank() == 4 && std::ranges::all_of(node_->inputs, fits) &&
                         std::ranges::any_of(node_->inputs, [&](const Variable& x) { return is_images(x); });
  Names inputs;
  for (const Variable& one : node_->inputs) inputs.push_back(as_images ? images(one) : plain(one));
  const std::string y = elementwise(inputs);
  return as_images ? Value{.images = y} : Value{.plain = y};
}

std::string OnnxExporter::elementwise(Names inputs) {
  const std::string_view op = node_->name;
  const std::string x = inputs.front();
  const auto times = [&](const std::string& y, double factor) {
    return graph_.node("Mul", {y, graph_.scalar(factor)});
  };
  if (op == "scale") return times(x, number("factor"));
  if (op == "add_scalar") return graph_.node("Add", {x, graph_.scalar(number("addend"))});
  if (op == "silu") return graph_.node("Mul", {x, graph_.node("Sigmoid", {x})});
  if (op == "gelu") {  // x (1 + erf(x / sqrt(2))) / 2, which runtimes recognize
    const std::string erf = graph_.node("Erf", {graph_.node("Div", {x, graph_.scalar(std::numbers::sqrt2)})});
    const std::string sum = graph_.node("Add", {erf, graph_.scalar(1)});
    return times(graph_.node("Mul", {x, sum}), 0.5);
  }
  if (op == "gelu_tanh") {  // x sigmoid(2 u), where u is the argument of tanh
    const std::string cube = graph_.node("Pow", {x, graph_.scalar(3)});
    const std::string sum = graph_.node("Add", {x, times(cube, 0.044715)});
    return graph_.node("Mul", {x, graph_.node("Sigmoid", {times(sum, std::sqrt(8 / std::numbers::pi))})});
  }
  if (op == "softplus") {
    if (number("q") < 20)
      refuse("a threshold below 20");  // at higher ones, both formulas have the same value in f32
    return times(graph_.node("Softplus", {times(x, number("p"))}), 1 / number("p"));
  }
  const auto alpha = [&](double value) {
    return std::vector<OnnxGraph::Attribute>{{"alpha", static_cast<float>(value)}};
  };
  if (op == "clamp" || op == "hardtanh")
    return graph_.node("Clip", {x, graph_.scalar(number("p")), graph_.scalar(number("q"))});
  if (op == "leaky_relu") return graph_.node("LeakyRelu", {x}, alpha(number("p")));
  if (op == "elu") return graph_.node("Elu", {x}, alpha(number("p")));
  if (op == "hardsigmoid") return graph_.node("HardSigmoid", {x}, alpha(1.0 / 6));
  const auto found = kElementwise.find(op);
  if (found == kElementwise.end()) refuse("an unknown operation");
  if (op == "pow") inputs.push_back(graph_.scalar(number("p")));
  return graph_.node(found->second, inputs);
}

OnnxExporter::Value OnnxExporter::linear() {
  Names inputs = {plain(input(0)), plain(input(1))};
  if (node_->inputs.size() > 2) inputs.push_back(plain(input(2)));
  if (shape(0).rank() == 2)
    return with_relu({.plain = graph_.node("Gemm", inputs, {{"transB", std::int64_t{1}}})});
  const std::string transposed =
      graph_.node("Transpose", {inputs[1]}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const std::string y = graph_.node("MatMul", {inputs[0], transposed});
  return with_relu({.plain = inputs.size() > 2 ? graph_.node("Add", {y, inputs[2]}) : y});
}

OnnxExporter::Value OnnxExporter::batch_norm() {
  if (shape(0).rank() != 2 && shape(0).rank() != 4) refuse("an input " + shape(0).text());
  std::string y =
      graph_.node("BatchNormalization",
                  {images(input(0)), constant(input(1)), constant(input(2)),
                   constant(attribute("running_mean").tensor), constant(attribute("running_var").tensor)},
                  {{"epsilon", static_cast<float>(number("epsilon"))}});
  if (node_->inputs.size() > 3) y = graph_.node("Add", {y, images(input(3))});
  return with_relu(shape(0).rank() == 4 ? Value{.images = y} : Value{.plain = y});
}

OnnxExporter::Value OnnxExporter::layer_norm() {
  std::int64_t axis = shape(0).rank();
  std::vector<std::int64_t> sizes;  // of the last axes
  for (std::int64_t count = 1; sizes.empty() || count < integer("elements"); count *= sizes.front())
    sizes.insert(sizes.begin(), shape(0)[static_cast<int>(--axis)]);
  Names inputs = {plain(input(0))};
  if (number("has_weight") != 0) {
    inputs.push_back(plain(input(1)));
  } else {  // which ONNX requires
    const std::vector<float> ones(static_cast<std::size_t>(integer("elements")), 1);
    inputs.push_back(graph_.constant(fmt::format("constant_ones_{}", fmt::join(sizes, "_")), sizes, ones));
  }
  if (number("has_bias") != 0) inputs.push_back(plain(node_->inputs.back()));
  return {.plain = graph_.node("LayerNormalization", inputs,
                               {{"axis", axis}, {"epsilon", static_cast<float>(number("epsilon"))}})};
}

OnnxExporter::Value OnnxExporter::attention() {
  if (node_->inputs.size() > 3) refuse("a mask");
  std::vector<std::int64_t> swapped;
  for (std::int64_t axis = 0; axis < shape(1).rank(); ++axis) swapped.push_back(axis);
  std::swap(swapped.back(), swapped[swapped.size() - 2]);
  const std::string keys = graph_.node("Transpose", {plain(input(1))}, {{"perm", swapped}});
  std::string scores =
      graph_.node("Mul", {graph_.node("MatMul", {plain(input(0)), keys}), graph_.scalar(number("scale"))});
  if (number("causal") != 0) {
    const std::int64_t rows = shape(0)[-2], columns = shape(1)[-2];
    std::vector<float> mask;
    for (std::int64_t i = 0; i < rows * columns; ++i)
      mask.push_back(i % columns > i / columns ? -std::numeric_limits<float>::infinity() : 0.0F);
    const std::string name = fmt::format("constant_causal_{}_{}", rows, columns);
    scores = graph_.node("Add", {scores, graph_.constant(name, std::vector{rows, columns}, mask)});
  }
  const std::string weights = graph_.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  return {.plain = graph_.node("MatMul", {weights, plain(input(2))})};
}

OnnxExporter::Value OnnxExporter::broadcast_to(const Shape& result, bool has_batch) {
  std::vector<std::int64_t> sizes(result.sizes().begin(), result.sizes().end());
  if (has_batch) sizes[0] = 1;  // the larger of the two
  std::string shape;
  if (sizes[0] == kBatch) {
    const std::string count =
        graph_.node("Shape", {"images"}, {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
    shape = graph_.integers({sizes.begin() + 1, sizes.end()});
    shape = graph_.node("Concat", {count, shape}, {{"axis", std::int64_t{0}}});
  } else {
    shape = graph_.integers(sizes);
  }
  return {.plain = graph_.node("Expand", {plain(input(0)), shape})};
}

OnnxExporter::Value OnnxExporter::sum_to(const Shape& result, bool has_batch) {
  if (result.rank() != shape(0).rank())
    refuse(fmt::format("a sum of {} to {}", shape(0).text(), result.text()));
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (result[axis] != shape(0)[axis]) axes.push_back(axis);
  if (axes.empty()) return {.plain = plain(input(0))};
  check_axis(axes.front(), has_batch);
  return {.plain = graph_.node("ReduceSum", {plain(input(0)), graph_.integers(axes)},
                               {{"keepdims", std::int64_t{1}}})};
}

OnnxExporter::Value OnnxExporter::reshape(const Shape& result, bool has_batch) {
  const auto same_order = [](const Shape& shape) {
    return shape.rank() != 4 || shape[1] * shape[2] == 1 || shape[3] == 1;
  };
  const Shape& from = shape(0);
  if (has_batch && (result.rank() < 2 || result[0] % kBatch != 0))
    refuse(fmt::format("a reshape of {} to {}", from.text(), result.text()));
  if (has_batch && from[0] == result[0] && same_order(from) && same_order(result) &&
      (is_images(input(0)) || (from.rank() != 4 && result.rank() == 4))) {
    const std::string x = images(input(0));
    if (result.rank() == 2) return {.plain = flat(x)};
    std::vector<std::int64_t> sizes = sample_of(result);
    sizes.insert(sizes.begin(), 0);  // 0: the size of the input, here N
    const std::string y = graph_.node("Reshape", {x, graph_.integers(sizes)});
    return result.rank() == 4 ? Value{.images = y} : Value{.plain = y};
  }
  std::vector<std::int64_t> sizes(result.sizes().begin(), result.sizes().end());
  if (has_batch) sizes[0] = from[0] == result[0] ? 0 : -1;  // -1: what is left
  return {.plain = graph_.node("Reshape", {plain(input(0)), graph_.integers(sizes)})};
}

std::vector<OnnxGraph::Attribute> OnnxExporter::window(const std::vector<std::int64_t>& kernel,
                                                       const std::vector<std::int64_t>& pads) const {
  return {{"kernel_shape", kernel}, {"strides", list("stride")}, {"pads", pads}};
}

OnnxExporter::Value OnnxExporter::pool(const Shape& result) {
  const bool is_average = node_->name == "avg_pool2d";
  std::vector<std::int64_t> pads = list("padding"), behind;
  for (int axis = 0; axis < 2; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const std::int64_t end = (result[axis + 1] - 1) * list("stride")[i] + list("kernel")[i];
    behind.push_back(std::max(pads[i], end - shape(0)[axis + 1] - pads[i]));
  }
  std::string x = images(input(0));
  std::int64_t counts_padding = is_average && number("count_include_pad") != 0 ? 1 : 0;
  if (counts_padding == 1 && behind != pads) {
    if (pads[0] + pads[1] > 0)
      x = graph_.node("Pad", {x, graph_.integers({0, 0, pads[0], pads[1], 0, 0, pads[0], pads[1]})});
    behind = {behind[0] - pads[0], behind[1] - pads[1]};
    pads = {0, 0};
    counts_padding = 0;
  }
  auto attributes = window(list("kernel"), {pads[0], pads[1], behind[0], behind[1]});
  if (is_average) attributes.emplace_back("count_include_pad", counts_padding);
  return {.images = graph_.node(is_average ? "AveragePool" : "MaxPool", {x}, attributes)};
}

OnnxExporter::Value OnnxExporter::pad(bool has_batch) {
  const bool as_images = shape(0).rank() == 4 && is_images(input(0));
  const auto axis_of = [&](std::int64_t axis) {
    constexpr std::int64_t kAxes[] = {0, 2, 3, 1};
    return as_images ? kAxes[axis] : axis;
  };
  const std::string x = as_images ? images(input(0)) : plain(input(0));
  std::string y;
  if (node_->name == "pad") {
    const std::vector<std::int64_t>& around = list("padding");
    std::vector<std::int64_t> pads(around.size());
    for (std::size_t axis = 0; axis < around.size() / 2; ++axis) {
      const auto to = static_cast<std::size_t>(axis_of(static_cast<std::int64_t>(axis)));
      pads[to] = around[2 * axis];
      pads[to + around.size() / 2] = around[2 * axis + 1];
    }
    check_axis(pads[0] + pads[around.size() / 2] > 0 ? 0 : 1, has_batch);
    y = graph_.node("Pad", {x, graph_.integers(pads), graph_.scalar(number("value"))});
  } else {
    check_axis(integer("axis"), has_batch);
    y = graph_.node("Gather", {x, graph_.integers(list("positions"))}, {{"axis", axis_of(integer("axis"))}});
  }
  return as_images ? Value{.images = y} : Value{.plain = y};
}

OnnxExporter::Value OnnxExporter::conv2d() {
  Names inputs = {images(input(0)), constant(input(1), nn::ParameterKind::filter)};
  if (node_->inputs.size() > 2) inputs.push_back(constant(input(2)));
  const std::vector<std::int64_t>& padding = list("padding");
  auto attributes = window({shape(1)[1], shape(1)[2]}, {padding[0], padding[1], padding[0], padding[1]});
  attributes.emplace_back("dilations", list("dilation"));
  attributes.emplace_back("group", integer("groups"));
  return with_relu({.images = graph_.node("Conv", inputs, attributes)});
}

}  // namespace convoy::io
