#include "convoy/engine/io/onnx.h"

#include <algorithm>
#include <unordered_set>

#include "convoy/engine/io/file.h"
#include "convoy/engine/io/onnx_exporter.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

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
