// The conversion of recorded operations to the nodes of an ONNX file.
//
// Images are [N, C, H, W] in ONNX and [N, H, W, C] here. Convolutions, pooling and what is elementwise after them stay
// in ONNX's order, without a transposition. All other operations name their axes: they get a value of four axes in the
// order that it has here, and the graph has a transposition where the order changes, once per value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/io/onnx_graph.h"
#include "convoy/engine/nn/module.h"

namespace convoy::io {

/// The size of the batch axis while the graph is recorded: unlike 1, it shows whether an operation moves the axis.
inline constexpr std::int64_t kBatch = 97;

/// Returns the shape of one sample of a batch of images, or of anything but images, in the order of ONNX.
inline std::vector<std::int64_t> sample_of(const Shape& batch) {
  if (batch.rank() == 4) return {batch[3], batch[1], batch[2]};
  return {batch.sizes().begin() + 1, batch.sizes().end()};
}

/// Exports the recorded operations of a network, one after the other.
class OnnxExporter {
 public:
  OnnxExporter(nn::Module& network, const Variable& input, const std::string& input_name);

  OnnxGraph& graph() { return graph_; }

  /// Adds the operation that computed `result`.
  void add(const Variable& result);
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
                       const std::vector<std::int64_t>& axes);

  /// Adds a parameter or a buffer in the layout of a checkpoint.
  std::string constant(const Tensor& tensor, nn::ParameterKind kind = nn::ParameterKind::weight);
  std::string constant(const Variable& leaf, nn::ParameterKind kind = nn::ParameterKind::weight);

  Value with_relu(Value x) {
    std::string& name = x.images.empty() ? x.plain : x.images;
    if (number("relu") != 0) name = graph_.node("Relu", {name});
    return x;
  }

  const std::vector<std::int64_t>& list(std::string_view name) const { return attribute(name).list; }

  std::vector<OnnxGraph::Attribute> window(const std::vector<std::int64_t>& kernel,
                                           const std::vector<std::int64_t>& pads) const;

  Value convert(const Shape& result, bool has_batch);
  /// Exports an operation in ONNX's order if all operands have four axes and one is in this order already. Otherwise
  /// operands are aligned at the last axis, as here.
  Value elementwise(const Shape& result);
  std::string elementwise(Names inputs);
  Value conv2d();
  /// Exports pooling with ordinary windows. Runtimes disagree about the operators' ceil_mode, so what the last windows
  /// need behind the padding is more padding. If averages count the padding, but not what is behind it, another
  /// operation pads.
  Value pool(const Shape& result);
  /// Exports padding. Images stay in ONNX's order.
  Value pad(bool has_batch);
  Value linear();
  Value batch_norm();
  Value layer_norm();
  Value attention();
  Value broadcast_to(const Shape& result, bool has_batch);
  Value sum_to(const Shape& result, bool has_batch);
  std::string flat(const std::string& x) { return graph_.node("Flatten", {x}, {{"axis", std::int64_t{1}}}); }
  /// Exports a reshape within samples, or one that joins axes with the batch axis or takes them apart again.
  Value reshape(const Shape& result, bool has_batch);

  OnnxGraph graph_;
  Variable input_;
  const Node* node_ = nullptr;           // the operation that is added
  std::map<const Node*, Value> values_;  // of results; null: of the input
  std::map<const void*, NamedTensor> tensors_;
};

}  // namespace convoy::io
