// A reader of ONNX files and an interpreter of their graphs, in plain loops and f64. Neither uses code of the
// engine, so tests compare a network with its export.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::testing {

struct OnnxTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // row-major
};

struct OnnxNode {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, double> floats;
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, std::vector<std::int64_t>> lists;
};

struct OnnxFile {
  std::int64_t ir_version = 0, opset = 0;
  std::string producer, graph_name;
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> constants;
  /// Shapes by name: numbers, and names of axes that are not fixed.
  std::map<std::string, std::vector<std::string>> inputs, outputs;
  std::map<std::string, std::string> metadata;
};

/// Decodes a file. Throws std::runtime_error for anything that is not valid, or that the engine never writes.
OnnxFile read_onnx(std::string_view bytes);

/// Returns the output `logits` for the input `images`. Throws std::runtime_error for an operator that is not
/// implemented here, a value that is used before it is computed, and shapes that do not fit.
OnnxTensor run_onnx(const OnnxFile& file, const OnnxTensor& images);

}  // namespace convoy::testing
