// The objects behind finalized cuDNN descriptors: tensors, operations and graphs.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "tests/cuda_emulator/vendor/cudnn_descriptor.h"
#include "tests/cuda_emulator/vendor/vendor_elements.h"
#include "tests/cuda_emulator/vendor/vendor_sums.h"

namespace convoy::emulator {

/// A tensor descriptor.
struct Tensor {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> dims, strides;  // order N, C, spatial dimensions, for any memory layout
  std::int64_t alignment = 1;               // guaranteed alignment of its address
  bool is_virtual = false;                  // an intermediate result of a graph that is not stored

  friend bool operator==(const Tensor&, const Tensor&) = default;
  Element element() const;
  /// Returns the number of bytes from the first element to the last.
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

/// A convolution in one direction. The output is y, x or w for forward, data and filter: alpha * conv + beta
/// * output.
struct ConvolutionOperation {
  Direction direction = Direction::forward;
  Tensor x, w, y;
  Convolution convolution;
  double alpha = 1, beta = 0;

  const Tensor& output() const;
  /// Returns the number of independent channel groups.
  std::int64_t groups() const { return x.dims[1] / w.dims[1]; }
  /// Returns the shape; requires two spatial dimensions.
  ConvolutionShape shape() const;
};

/// y = mode(alpha1 x, alpha2 b). A dimension of size 1 is broadcast.
struct PointwiseOperation {
  Pointwise pointwise;
  Tensor x;
  std::optional<Tensor> b;
  Tensor y;
  double alpha1 = 1, alpha2 = 1;
};

using Operation = std::variant<ConvolutionOperation, PointwiseOperation>;

/// An operation graph on one GPU.
struct Graph {
  int gpu = 0;
  std::vector<Operation> operations;
};

/// Returns the inputs of an operation, then its output.
std::vector<Tensor> tensors_of(const Operation& operation);

// Create an object from a descriptor whose attributes are complete. Throw a CudnnRefusal for inconsistent
// attributes.
Tensor make_tensor(const Descriptor& descriptor);
Convolution make_convolution(const Descriptor& descriptor);
Pointwise make_pointwise(const Descriptor& descriptor);
ConvolutionOperation make_convolution_operation(const Descriptor& descriptor);
PointwiseOperation make_pointwise_operation(const Descriptor& descriptor);
Graph make_graph(const Descriptor& descriptor, int gpu);

}  // namespace convoy::emulator
