// Feature maps are [N, C, H, W] in ONNX and [N, H, W, C] here. The graph has no transposition, because every
// operation that is exported has the same meaning for both, or an operator with the order of ONNX. Field
// numbers are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
#include "convoy/engine/io/onnx.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numbers>
#include <span>
#include <type_traits>
#include <unordered_set>

#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::io {
namespace {

/// A message in the encoding of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), to which fields are appended by their numbers. A repeated field is appended several times.
/// The functions return the message itself.
class ProtobufMessage {
 public:
  /// Appends an int64, an int32 or an enum.
  ProtobufMessage& integer(int field, std::int64_t value) {
    tag(field, WireType::varint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  /// Appends a float.
  ProtobufMessage& number(int field, float value) {
    tag(field, WireType::fixed32);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  /// Appends a string, which must be UTF-8, or bytes.
  ProtobufMessage& bytes(int field, std::string_view value) {
    tag(field, WireType::length_delimited);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  /// Appends a message.
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.bytes_); }

  /// Returns the encoded fields.
  const std::string& encoded() const { return bytes_; }

 private:
  enum class WireType : std::uint8_t { varint = 0, length_delimited = 2, fixed32 = 5 };
  void tag(int field, WireType type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

constexpr std::int64_t kFloat = 1, kInt64 = 7;  // TensorProto.DataType
// The size of the batch axis while the graph is recorded: unlike 1, it shows whether an operation moves the
// axis.
constexpr std::int64_t kBatch = 7;

/// Operations with one or two inputs of the shape of the result, and ONNX's name of them.
const std::map<std::string_view, const char*> kElementwise = {
    {"relu", "Relu"},   {"tanh", "Tanh"},  {"sigmoid", "Sigmoid"}, {"hardswish", "HardSwish"},
    {"exp", "Exp"},     {"log", "Log"},    {"sqrt", "Sqrt"},       {"abs", "Abs"},
    {"add", "Add"},     {"sub", "Sub"},    {"mul", "Mul"},         {"div", "Div"},
    {"maximum", "Max"}, {"minimum", "Min"}};

/// The graph of an ONNX file. Functions that add a node return the name of its result.
class OnnxGraph {
 public:
  using Names = std::vector<std::string>;
  /// An attribute of a node: a float, an integer, or a list of integers.
  struct Attribute {
    ProtobufMessage message;

    Attribute(std::string_view name, float value) { message.bytes(1, name).number(2, value).integer(20, 1); }
    Attribute(std::string_view name, std::int64_t value) {
      message.bytes(1, name).integer(3, value).integer(20, 2);
    }
    Attribute(std::string_view name, const std::vector<std::int64_t>& values) {
      message.bytes(1, name);
      for (const std::int64_t value : values) message.integer(8, value);
      message.integer(20, 7);
    }
  };

  std::string node(const char* type, const Names& inputs, const std::vector<Attribute>& attributes = {},
                   const std::string& output = "") {
    const std::string name = fmt::format("{}_{}", type, ++nodes_);
    const std::string result = output.empty() ? name : output;
    ProtobufMessage message;
    for (const std::string& input : inputs) message.bytes(1, input);
    message.bytes(2, result).bytes(3, name).bytes(4, type);
    for (const Attribute& attribute : attributes) message.message(5, attribute.message);
    graph_.message(1, message);
    return result;
  }
  /// Adds a constant from a host tensor, unless there is one with this name.
  std::string constant(const std::string& name, const Tensor& value) {
    return constant(name, value.shape().sizes(), value.to(DType::f32).to_vector<float>());
  }
  std::string scalar(double value) {
    return constant(fmt::format("constant_{}", static_cast<float>(value)), {},
                    std::vector{static_cast<float>(value)});
  }
  /// Adds a shape for the operator Reshape.
  std::string shape(const std::vector<std::int64_t>& sizes) {
    return constant(fmt::format("constant_shape_{}", fmt::join(sizes, "_")), std::vector{std::ssize(sizes)},
                    sizes);
  }
  template <class T>
  std::string constant(const std::string& name, std::span<const std::int64_t> shape,
                       const std::vector<T>& values) {
    static_assert(std::endian::native == std::endian::little, "raw data is little-endian");
    if (!constants_.insert(name).second) return name;
    ProtobufMessage tensor;
    for (const std::int64_t size : shape) tensor.integer(1, size);
    tensor.integer(2, std::is_same_v<T, float> ? kFloat : kInt64).bytes(8, name);
    tensor.bytes(9, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
    graph_.message(5, tensor);
    return name;
  }
  /// Declares the input (field 11) or the output (field 12) with this shape of one sample.
  void declare(int field, const std::string& name, std::span<const std::int64_t> sample) {
    ProtobufMessage shape;
    shape.message(1, ProtobufMessage().bytes(2, "N"));
    for (const std::int64_t size : sample) shape.message(1, ProtobufMessage().integer(1, size));
    const ProtobufMessage type =
        ProtobufMessage().message(1, ProtobufMessage().integer(1, kFloat).message(2, shape));
    graph_.message(field, ProtobufMessage().bytes(1, name).message(2, type));
  }

  std::string file(const OnnxOptions& options) {
    graph_.bytes(2, options.name);
    ProtobufMessage model;
    constexpr int kOnnxFormat = 8;  // the version of the format that belongs to the operators
    model.integer(1, kOnnxFormat).bytes(2, "Convoy").bytes(3, kVersion).message(7, graph_);
    model.message(8, ProtobufMessage().bytes(1, "").integer(2, kOnnxOpset));
    for (const auto& [key, value] : options.metadata)
      model.message(14, ProtobufMessage().bytes(1, key).bytes(2, value));
    constexpr std::size_t kMaxBytes = (std::size_t{1} << 31) - 1;
    check(model.encoded().size() <= kMaxBytes,
          "onnx: found {} bytes, expected at most {}, the limit of the format", model.encoded().size(),
          kMaxBytes);
    return model.encoded();
  }

 private:
  ProtobufMessage graph_;
  int nodes_ = 0;
  std::unordered_set<std::string> constants_;
};

using Names = OnnxGraph::Names;

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
  std::sort(results.begin(), results.end(), [](const Variable& a, const Variable& b) {
    return a.creator()->sequence < b.creator()->sequence;
  });
  return results;
}

/// Returns the shape of one sample of a batch of images, or of anything but images, in the order of ONNX.
std::vector<std::int64_t> sample_of(const Shape& batch) {
  if (batch.rank() == 4) return {batch[3], batch[1], batch[2]};
  return {batch.sizes().begin() + 1, batch.sizes().end()};
}

class OnnxExporter {
 public:
  OnnxExporter(nn::Module& network, const Variable& input, const std::string& input_name) : input_(input) {
    names_[nullptr] = input_name;
    for (const nn::NamedParameter& parameter : network.parameters()) {
      parameter.variable.wait_ready();
      tensor_names_[parameter.variable.value().view().data] = parameter.name;
    }
    for (const nn::NamedBuffer& buffer : network.buffers())
      tensor_names_[buffer.tensor.view().data] = buffer.name;
  }

  OnnxGraph& graph() { return graph_; }

  /// Adds the operation that computed `result`.
  void add(const Variable& result) {
    node_ = result.creator().get();
    names_[node_] = convert(result.shape());
  }
  /// Returns the name of a result or of the input.
  std::string value_name(const Variable& x) const {
    if (x.is_leaf() && !(x == input_)) refuse("a parameter in another place than of a layer");
    return names_.at(x.creator().get());
  }

 private:
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

  /// Adds a parameter or a buffer in the layout of a checkpoint.
  std::string constant(const Tensor& tensor, nn::ParameterKind kind = nn::ParameterKind::weight) {
    const auto named = tensor_names_.find(tensor.view().data);
    // Tensors of modules that are not registered get a number.
    const std::string name =
        named != tensor_names_.end() ? named->second : fmt::format("tensor_{}", tensor_names_.size());
    if (named == tensor_names_.end()) tensor_names_[tensor.view().data] = name;
    return graph_.constant(name, to_checkpoint(tensor, kind));
  }
  std::string constant(const Variable& leaf, nn::ParameterKind kind = nn::ParameterKind::weight) {
    if (!leaf.is_leaf()) refuse("a computed parameter");
    return constant(leaf.value(), kind);
  }

  std::string with_relu(const std::string& x) { return number("relu") != 0 ? graph_.node("Relu", {x}) : x; }

  std::vector<OnnxGraph::Attribute> window(std::int64_t height, std::int64_t width) const {
    const std::int64_t stride = integer("stride"), padding = integer("padding");
    return {{"kernel_shape", std::vector{height, width}},
            {"strides", std::vector{stride, stride}},
            {"pads", std::vector{padding, padding, padding, padding}}};
  }

  std::string convert(const Shape& result) {
    const std::string_view op = node_->name;
    const std::string x = value_name(input(0));
    if (op == "conv2d") return conv2d(x);
    if (op == "linear") return linear(x);
    if (op == "batch_norm") return batch_norm(x);
    if (op == "max_pool2d") return graph_.node("MaxPool", {x}, window(integer("kernel"), integer("kernel")));
    if (op == "avg_pool2d") {
      auto attributes = window(integer("kernel"), integer("kernel"));
      attributes.emplace_back("count_include_pad", std::int64_t{1});
      return graph_.node("AveragePool", {x}, attributes);
    }
    if (op == "global_avg_pool2d") return flat(graph_.node("GlobalAveragePool", {x}));
    if (op == "flatten") return flat(x);
    if (op == "reshape") return reshape(x, result);
    if (op == "scale") return graph_.node("Mul", {x, graph_.scalar(number("factor"))});
    if (op == "add_scalar") return graph_.node("Add", {x, graph_.scalar(number("addend"))});
    if (op == "silu") return graph_.node("Mul", {x, graph_.node("Sigmoid", {x})});
    if (op == "gelu") {  // x (1 + erf(x / sqrt(2))) / 2, which runtimes recognize
      const std::string erf =
          graph_.node("Erf", {graph_.node("Div", {x, graph_.scalar(std::numbers::sqrt2)})});
      const std::string sum = graph_.node("Add", {erf, graph_.scalar(1)});
      return graph_.node("Mul", {graph_.node("Mul", {x, sum}), graph_.scalar(0.5)});
    }
    const auto elementwise = kElementwise.find(op);
    if (elementwise == kElementwise.end()) refuse("an unknown operation");
    Names inputs;
    for (const Variable& one : node_->inputs) {
      // Axes would be aligned at the last one, which is another axis in the other order.
      if (one.shape().rank() != result.rank()) refuse("operands of different ranks");
      inputs.push_back(value_name(one));
    }
    return graph_.node(elementwise->second, inputs);
  }

  std::string conv2d(const std::string& x) {
    Names inputs = {x, constant(input(1), nn::ParameterKind::filter)};
    if (node_->inputs.size() > 2) inputs.push_back(constant(input(2)));
    auto attributes = window(shape(1)[1], shape(1)[2]);
    attributes.emplace_back("group", integer("groups"));
    return with_relu(graph_.node("Conv", inputs, attributes));
  }

  std::string linear(const std::string& x) {
    Names inputs = {x, constant(input(1))};
    if (node_->inputs.size() > 2) inputs.push_back(constant(input(2)));
    return with_relu(graph_.node("Gemm", inputs, {{"transB", std::int64_t{1}}}));
  }

  std::string batch_norm(const std::string& x) {
    if (shape(0).rank() != 2 && shape(0).rank() != 4) refuse("an input " + shape(0).text());
    std::string y =
        graph_.node("BatchNormalization",
                    {x, constant(input(1)), constant(input(2)), constant(attribute("running_mean").tensor),
                     constant(attribute("running_var").tensor)},
                    {{"epsilon", static_cast<float>(number("epsilon"))}});
    if (node_->inputs.size() > 3) y = graph_.node("Add", {y, value_name(input(3))});
    return with_relu(y);
  }

  std::string flat(const std::string& x) { return graph_.node("Flatten", {x}, {{"axis", std::int64_t{1}}}); }

  /// Exports a reshape within samples, of elements whose order is the same in both layouts.
  std::string reshape(const std::string& x, const Shape& result) {
    const auto same_order = [](const Shape& shape) {
      return shape.rank() != 4 || shape[1] * shape[2] == 1 || shape[3] == 1;
    };
    const Shape& from = shape(0);
    if (!same_order(from) || !same_order(result) || result.rank() < 2 || result[0] != kBatch)
      refuse(fmt::format("a reshape of {} to {}", from.text(), result.text()));
    if (result.rank() == 2) return flat(x);
    std::vector<std::int64_t> sizes = sample_of(result);
    sizes.insert(sizes.begin(), 0);  // 0: the size of the input, here N
    return graph_.node("Reshape", {x, graph_.shape(sizes)});
  }

  OnnxGraph graph_;
  Variable input_;
  const Node* node_ = nullptr;                // the operation that is added
  std::map<const Node*, std::string> names_;  // of results; null: of the input
  std::map<const void*, std::string> tensor_names_;
};

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
  graph.node("Identity", {exporter.value_name(output)}, {}, "logits");
  graph.declare(12, "logits", sample_of(output.shape()));
  return graph.file(options);
}

}  // namespace convoy::io
