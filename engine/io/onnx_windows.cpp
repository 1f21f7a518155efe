// Convolutions, pooling and padding in ONNX.
#include <algorithm>

#include "convoy/engine/io/onnx_exporter.h"

namespace convoy::io {

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
