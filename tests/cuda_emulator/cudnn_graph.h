// What cuDNN's descriptors of tensors, operations and graphs of them say once they are finalized.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "tests/cuda_emulator/cudnn_descriptor.h"
#include "tests/cuda_emulator/vendor_elements.h"
#include "tests/cuda_emulator/vendor_sums.h"

namespace convoy::emulator {

struct Tensor {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> dims, strides;  // N, C and the spatial ones, wherever they lie in memory
  std::int64_t alignment = 1;               // that its address is promised to have
  bool is_virtual = false;                  // never in memory: from one operation of a graph to the next

  friend bool operator==(const Tensor&, const Tensor&) = default;
  Element element() const;
  /// From its first element to its last.
  std::size_t bytes() const;
};

struct Convolution {
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  std::vector<std::int64_t> strides, dilations, pre_paddings, post_paddings;
};

struct Pointwise {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  double lower_clip = 0;
};

enum class Direction : std::uint8_t { forward, data, filter };

/// Which of the three is computed is the direction's matter: y, x or w = alpha conv + beta of what it was.
struct ConvolutionOperation {
  Direction direction = Direction::forward;
  Tensor x, w, y;
  Convolution convolution;
  double alpha = 1, beta = 0;

  const Tensor& output() const;
  /// Groups of channels that see nothing of each other.
  std::int64_t groups() const { return x.dims[1] / w.dims[1]; }
  /// Of one with two spatial dimensions.
  ConvolutionShape shape() const;
};

/// y = mode(alpha1 x, alpha2 b); a tensor of size 1 in some dimension is repeated along it.
struct PointwiseOperation {
  Pointwise pointwise;
  Tensor x;
  std::optional<Tensor> b;
  Tensor y;
  double alpha1 = 1, alpha2 = 1;
};

using Operation = std::variant<ConvolutionOperation, PointwiseOperation>;

struct Graph {
  int gpu = 0;
  std::vector<Operation> operations;
};

/// Inputs of an operation, then its output.
std::vector<Tensor> tensors_of(const Operation& operation);

// From a descriptor whose attributes are complete; refuse what does not fit together.
Tensor make_tensor(const Descriptor& descriptor);
Convolution make_convolution(const Descriptor& descriptor);
Pointwise make_pointwise(const Descriptor& descriptor);
ConvolutionOperation make_convolution_operation(const Descriptor& descriptor);
PointwiseOperation make_pointwise_operation(const Descriptor& descriptor);
Graph make_graph(const Descriptor& descriptor, int gpu);

}  // namespace convoy::emulator
