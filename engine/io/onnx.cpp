#include "convoy/engine/io/onnx.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <unordered_set>

#include "convoy/engine/io/file.h"
#include "convoy/engine/io/onnx_graph.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"

// Images are [N, C, H, W] in ONNX and [N, H, W, C] here. Convolutions, pooling and what is elementwise after them stay
// in ONNX's order, without a transposition. All other operations name their axes: they get a value of four axes in the
// order that it has here, and the graph has a transposition where the order changes, once per value.

namespace convoy::io {
namespace {

/// The size of the batch axis while the graph is recorded: unlike 1, it shows whether an operation moves the axis.
constexpr std::int64_t kBatch = 97;

/// Returns the shape of one sample of a batch of images, or of anything but images, in the order of ONNX.
std::vector<std::int64_t> sample_of(const Shape& batch) {
  if (batch.rank() == 4) return {batch[3], batch[1], batch[2]};
  return {batch.sizes().begin() + 1, batch.sizes().end()};
}

/// Operations with one or two inputs of the shape of the result, and ONNX's name of them.
const std::map<std::string_view, const char*> kElementwise = {
    {"relu", "Relu"},   {"tanh", "Tanh"},   {"sigmoid", "Sigmoid"}, {"hardswish", "HardSwish"},
    {"exp", "Exp"},     {"log", "Log"},     {"sqrt", "Sqrt"},       {"abs", "Abs"},
    {"add", "Add"},     {"sub", "Sub"},     {"mul", "Mul"},         {"div", "Div"},
    {"maximum", "Max"}, {"minimum", "Min"}, {"pow", "Pow"}};

/// Exports the recorded operations of a network, one after the other.
class OnnxExporter {
 public:
  OnnxExporter(nn::Module& network, const Variable& input, const std::string& input_name) : input_(input) {
    values_[nullptr] = {.images = input_name, .has_batch = true};
    for (const nn::NamedParameter& parameter : network.parameters()) {
      parameter.variable.wait_ready();
      tensors_[parameter.variable.value().view().data] = {parameter.name, parameter.kind};
    }
    for (const nn::NamedBuffer& buffer : network.buffers())
      tensors_[buffer.tensor.view().data] = {buffer.name, buffer.kind};
  }

  OnnxGraph& graph() { return graph_; }

  /// Adds the operation that computed `result`.
  void add(const Variable& result) {
    node_ = result.creator().get();
    const bool has_batch =
        std::ranges::any_of(node_->inputs, [&](const Variable& x) { return depends_on_batch(x); });
    Value value = convert(result.shape(), has_batch);
    value.has_batch = has_batch;
    values_[node_] = std::move(value);
  }
  /// Returns the name of a value in ONNX's order if it has four axes.
  std::string images(const Variable& x) { return in_order(x, &Value::images, &Value::plain, {0, 3, 1, 2}); }

 private:
  using Names = OnnxGraph::Names;
  /// The names of a result. One with four axes may exist in either order, or in both; any other is only `plain`.
  struct Value {
    std::string plain, images;
    /// Whether axis 0 has a multiple of N elements, as in everything that the images affect.
    bool has_batch = false;
  };
  /// A parameter or a buffer.
  struct NamedTensor {
    std::string name;
    nn::ParameterKind kind;
  };

  [[noreturn]] void refuse(std::string_view found) const {
    fail<UsageError>("onnx: operation '{}': found {}, which cannot be exported", node_->name, found);
  }

  double number(std::string_view name) const { return attribute(name).number; }
  std::int64_t integer(std::string_view name) const { return static_cast<std::int64_t>(number(name)); }
  const OpAttribute& attribute(std::string_view name) const {
    for (const OpAttribute& one : node_->attributes)
      if (one.name == name) return one;
    refuse(fmt::format("no attribute '{}'", name));
  }
  const Variable& input(std::size_t i) const { return node_->inputs[i]; }
  const Shape& shape(std::size_t i) const { return input(i).shape(); }
  bool is_constant(const Variable& x) const { return x.is_leaf() && !(x == input_); }
  bool depends_on_batch(const Variable& x) const {
    return !is_constant(x) && values_.at(x.creator().get()).has_batch;
  }
  bool is_images(const Variable& x) const {
    return !is_constant(x) && !values_.at(x.creator().get()).images.empty();
  }
  void check_axis(std::int64_t axis, bool has_batch) const {
    if (has_batch && axis == 0) refuse("a change of the batch axis");
  }

  /// Returns the name of a value in the order that it has here.
  std::string plain(const Variable& x) { return in_order(x, &Value::plain, &Value::images, {0, 2, 3, 1}); }
  /// Returns a name of the value, for which `axes` are the transposition from the other order.
  std::string in_order(const Variable& x, std::string Value::*wanted, std::string Value::*other,
                       const std::vector<std::int64_t>& axes) {
    Value constant_value;
    if (is_constant(x)) constant_value.plain = constant(x);
    Value& value = is_constant(x) ? constant_value : values_.at(x.creator().get());
    if (x.shape().rank() != 4) return value.plain;
    if ((value.*wanted).empty()) value.*wanted = graph_.node("Transpose", {value.*other}, {{"perm", axes}});
    return value.*wanted;
  }

  /// Adds a parameter or a buffer in the layout of a checkpoint.
  std::string constant(const Tensor& tensor, nn::ParameterKind kind = nn::ParameterKind::weight) {
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
  std::string constant(const Variable& leaf, nn::ParameterKind kind = nn::ParameterKind::weight) {
    if (!leaf.is_leaf()) refuse("a computed parameter");
    return constant(leaf.value(), kind);
  }

  Value with_relu(Value x) {
    std::string& name = x.images.empty() ? x.plain : x.images;
    if (number("relu") != 0) name = graph_.node("Relu", {name});
    return x;
  }

  const std::vector<std::int64_t>& list(std::string_view name) const { return attribute(name).list; }

  std::vector<OnnxGraph::Attribute> window(const std::vector<std::int64_t>& kernel,
                                           const std::vector<std::int64_t>& pads) const {
    return {{"kernel_shape", kernel}, {"strides", list("stride")}, {"pads", pads}};
  }

  Value convert(const Shape& result, bool has_batch) {
    const std::string_view op = node_->name;
    if (op == "conv2d") return conv2d();
    if (op == "linear") return linear();
    if (op == "batch_norm") return batch_norm();
    if (op == "max_pool2d" || op == "avg_pool2d") return pool(result);
    if (op.starts_with("adaptive_"))
      refuse(fmt::format("windows of several sizes, from {}x{} to {}x{} pixels", shape(0)[1], shape(0)[2],
                         result[1], result[2]));
    if (op == "pad" || op == "pad_axis") return pad(has_batch);
    if (op == "global_avg_pool2d")
      return {.plain = flat(graph_.node("GlobalAveragePool", {images(input(0))}))};
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
  /// Exports an operation in ONNX's order if all operands have four axes and one is in this order already. Otherwise
  /// operands are aligned at the last axis, as here.
  Value elementwise(const Shape& result) {
    const auto fits = [](const Variable& x) { return x.shape().rank() == 4 || x.shape().numel() == 1; };
    const bool as_images =
        result.rank() == 4 && std::ranges::all_of(node_->inputs, fits) &&
        std::ranges::any_of(node_->inputs, [&](const Variable& x) { return is_images(x); });
    Names inputs;
    for (const Variable& one : node_->inputs) inputs.push_back(as_images ? images(one) : plain(one));
    const std::string y = elementwise(inputs);
    return as_images ? Value{.images = y} : Value{.plain = y};
  }
  std::string elementwise(Names inputs) {
    const std::string_view op = node_->name;
    const std::string x = inputs.front();
    const auto times = [&](const std::string& y, double factor) {
      return graph_.node("Mul", {y, graph_.scalar(factor)});
    };
    if (op == "scale") return times(x, number("factor"));
    if (op == "add_scalar") return graph_.node("Add", {x, graph_.scalar(number("addend"))});
    if (op == "silu") return graph_.node("Mul", {x, graph_.node("Sigmoid", {x})});
    if (op == "gelu") {  // x (1 + erf(x / sqrt(2))) / 2, which runtimes recognize
      const std::string erf =
          graph_.node("Erf", {graph_.node("Div", {x, graph_.scalar(std::numbers::sqrt2)})});
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
  Value conv2d() {
    Names inputs = {images(input(0)), constant(input(1), nn::ParameterKind::filter)};
    if (node_->inputs.size() > 2) inputs.push_back(constant(input(2)));
    const std::vector<std::int64_t>& padding = list("padding");
    auto attributes = window({shape(1)[1], shape(1)[2]}, {padding[0], padding[1], padding[0], padding[1]});
    attributes.emplace_back("dilations", list("dilation"));
    attributes.emplace_back("group", integer("groups"));
    return with_relu({.images = graph_.node("Conv", inputs, attributes)});
  }
  /// Exports pooling with ordinary windows. Runtimes disagree about the operators' ceil_mode, so what the last windows
  /// need behind the padding is more padding. If averages count the padding, but not what is behind it, another
  /// operation pads.
  Value pool(const Shape& result) {
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
  /// Exports padding. Images stay in ONNX's order.
  Value pad(bool has_batch) {
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
      y = graph_.node("Gather", {x, graph_.integers(list("positions"))},
                      {{"axis", axis_of(integer("axis"))}});
    }
    return as_images ? Value{.images = y} : Value{.plain = y};
  }
  Value linear() {
    Names inputs = {plain(input(0)), plain(input(1))};
    if (node_->inputs.size() > 2) inputs.push_back(plain(input(2)));
    if (shape(0).rank() == 2)
      return with_relu({.plain = graph_.node("Gemm", inputs, {{"transB", std::int64_t{1}}})});
    const std::string transposed =
        graph_.node("Transpose", {inputs[1]}, {{"perm", std::vector<std::int64_t>{1, 0}}});
    const std::string y = graph_.node("MatMul", {inputs[0], transposed});
    return with_relu({.plain = inputs.size() > 2 ? graph_.node("Add", {y, inputs[2]}) : y});
  }
  Value batch_norm() {
    if (shape(0).rank() != 2 && shape(0).rank() != 4) refuse("an input " + shape(0).text());
    std::string y =
        graph_.node("BatchNormalization",
                    {images(input(0)), constant(input(1)), constant(input(2)),
                     constant(attribute("running_mean").tensor), constant(attribute("running_var").tensor)},
                    {{"epsilon", static_cast<float>(number("epsilon"))}});
    if (node_->inputs.size() > 3) y = graph_.node("Add", {y, images(input(3))});
    return with_relu(shape(0).rank() == 4 ? Value{.images = y} : Value{.plain = y});
  }
  Value layer_norm() {
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
  Value attention() {
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
  Value broadcast_to(const Shape& result, bool has_batch) {
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
  Value sum_to(const Shape& result, bool has_batch) {
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
  std::string flat(const std::string& x) { return graph_.node("Flatten", {x}, {{"axis", std::int64_t{1}}}); }
  /// Exports a reshape within samples, or one that joins axes with the batch axis or takes them apart again.
  Value reshape(const Shape& result, bool has_batch) {
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

  OnnxGraph graph_;
  Variable input_;
  const Node* node_ = nullptr;           // the operation that is added
  std::map<const Node*, Value> values_;  // of results; null: of the input
  std::map<const void*, NamedTensor> tensors_;
};

/// Returns the results of the operations behind `output`, in the order in which they were recorded.
std::vector<Variable> recorded_results(const Variable& output) {
  std::vector<Variable> results, unvisited;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Variable& variable) {
    if (variable.defined() && !variable.is_leaf() && seen.insert(variable.creator().get()).second)
      unvisited.push_back(variable);
  };
  visit(output);
  while (!unvisited.empty()) {
    results.push_back(unvisited.back());
    unvisited.pop_back();
    for (const Variable& input : results.back().creator()->inputs) visit(input);
  }
  std::ranges::sort(results, {}, [](const Variable& result) { return result.creator()->sequence; });
  return results;
}

}  // namespace

std::string encode_onnx(nn::Module& network, const Shape& image, const OnnxOptions& options) {
  check(image.rank() == 3, "onnx: found images of shape {}, expected [H, W, C]", image.text());
  const auto channels = static_cast<std::size_t>(image[2]);
  check(options.mean.size() == options.inverse_std.size() &&
            (options.mean.empty() || options.mean.size() == channels),
        "onnx: found {} means and {} standard deviations, expected one per channel of {} or none",
        options.mean.size(), options.inverse_std.size(), image.text());

  // Recorded on the meta device, also inside NoGrad: nothing is computed.
  const RecordingScope recording;
  const std::vector<nn::NamedParameter> parameters = network.parameters();
  const DType dtype = parameters.empty() ? DType::f32 : parameters.front().variable.dtype();
  const Variable input(Tensor::empty({kBatch, image[0], image[1], image[2]}, dtype, Device::meta()), true);
  const Variable output = network(input);
  check(!output.is_leaf(), "onnx: found a network without operations, expected at least one");

  OnnxExporter exporter(network, input, options.mean.empty() ? "images" : "normalized");
  OnnxGraph& graph = exporter.graph();
  graph.declare(11, "images", sample_of(input.shape()));
  if (!options.mean.empty()) {
    const std::vector<std::int64_t> per_channel = {1, image[2], 1, 1};
    const std::string centered =
        graph.node("Sub", {"images", graph.constant("input.mean", per_channel, options.mean)});
    graph.node("Mul", {centered, graph.constant("input.inverse_std", per_channel, options.inverse_std)}, {},
               "normalized");
  }
  for (const Variable& result : recorded_results(output)) exporter.add(result);
  graph.node("Identity", {exporter.images(output)}, {}, "logits");
  graph.declare(12, "logits", sample_of(output.shape()));
  return graph.file(options);
}

}  // namespace convoy::io

namespace convoy {

void to_onnx(nn::Module& network, const std::filesystem::path& file, const Shape& image,
             const io::OnnxOptions& options) {
  io::write_file_atomically(file, io::encode_onnx(network, image, options));
}

}  // namespace convoy
