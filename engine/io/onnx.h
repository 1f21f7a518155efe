// Export of networks to ONNX (https://onnx.ai), which other programs run: ONNX Runtime, TensorRT, OpenVINO.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/nn/module.h"

namespace convoy::io {

/// The version of ONNX's set of operators that encode_onnx() uses. ONNX Runtime reads it since version 1.12.
inline constexpr int kOnnxOpset = 17;

/// Options of encode_onnx().
struct OnnxOptions {
  std::string name = "convoy";  // of the graph
  /// The normalization that the graph begins with, (x - mean) inverse_std, one number per channel. Empty:
  /// none, so that the inputs are normalized already.
  std::vector<float> mean;
  std::vector<float> inverse_std;  // has as many as `mean`
  /// Keys and values to store in the file, in UTF-8.
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Returns the bytes of an ONNX file that computes what `network` does in inference. Its input is `images`,
/// f32 [N, C, H, W] for images of the shape `image`, [H, W, C]. Its output is `logits`, f32, of the shape
/// that the network returns; [N, C, H, W] if that is images. N is not fixed. Parameters and buffers have the
/// names and layouts of checkpoints, in f32.
///
/// The file is made from the graph that autograd records of one call, so a network of one's own needs no code
/// for it. The graph may have convolutions, linear layers, matrix multiplications, attention, softmax, batch and layer
/// norms, pooling, activations, elementwise arithmetic, sums over axes, and rearrangements that leave the batch axis
/// where it is; so transformers on images can be exported. Throws UsageError that names any other operation, like
/// a call of the network if `image` does not fit, and if the file would exceed 2 GiB, the limit of its
/// format.
std::string encode_onnx(nn::Module& network, const Shape& image, const OnnxOptions& options = {});

}  // namespace convoy::io

namespace convoy {

/// Writes the ONNX file of io::encode_onnx(). Throws UsageError as it does, and OutputError if the file cannot be written.
void to_onnx(nn::Module& network, const std::filesystem::path& file, const Shape& image,
             const io::OnnxOptions& options = {});

}  // namespace convoy
