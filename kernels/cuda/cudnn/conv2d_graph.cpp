// Describes a convolution to cuDNN as an operation graph.
#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::kernels {
namespace {

/// The unique ids of a graph's tensors.
enum : std::int64_t { kX = 1, kFilter, kBias, kY, kSum, kBiasedSum };

}  // namespace

std::string Conv2dProblem::text() const {
  const char* const name = direction == Conv2dDirection::forward         ? "forward"
                           : direction == Conv2dDirection::backward_data ? "backward data"
                                                                         : "backward filter";
  std::string text =
      fmt::format("conv2d {} {} n{} {}x{}x{} k{} {}x{} s{} p{}", name, to_string(dtype), sizes.n, sizes.h,
                  sizes.w, sizes.i, sizes.o, sizes.kh, sizes.kw, sizes.stride.text(), sizes.padding.text());
  if (sizes.dilation != 1) text += " d" + sizes.dilation.text();
  if (sizes.groups > 1) text += fmt::format(" g{}", sizes.groups);
  if (bias) text += " bias";
  if (relu) text += " relu";
  if (mode == GradMode::accumulate) text += " accumulate";
  if (alignment < kCudnnAlignment) text += fmt::format(" aligned {}", alignment);
  return text;
}

std::shared_ptr<const CudnnGraph> make_conv2d_graph(const CudnnTarget& target, const Conv2dProblem& problem) {
  const ConvSizes& s = problem.sizes;
  const cudnnDataType_t type = cudnn_type(problem.dtype);
  const auto graph = std::make_shared<CudnnGraph>();
  const auto keep = [&](CudnnDescriptor part) -> const CudnnDescriptor& {
    return graph->parts.emplace_back(std::move(part));
  };
  // The result of the last operation is y; the other results are virtual tensors between two operations.
  const auto result = [&](std::int64_t id, bool is_last) -> const CudnnDescriptor& {
    const Dims dims{s.n, s.o, s.oh, s.ow};
    return keep(is_last ? tensor(kY, dims, type, problem.alignment)
                        : tensor(id, dims, CUDNN_DATA_FLOAT, kCudnnAlignment, InMemory::no));
  };

  const CudnnDescriptor& x = keep(tensor(kX, {s.n, s.i, s.h, s.w}, type, problem.alignment));
  const CudnnDescriptor& filter =
      keep(tensor(kFilter, {s.o, s.group_inputs(), s.kh, s.kw}, type, problem.alignment));
  const CudnnDescriptor* sum = &result(kSum, !problem.has_epilogue());
  std::vector<CudnnDescriptor> operations;
  operations.push_back(convolve(problem.direction, keep(convolution(s)), x, filter, *sum, problem.mode));
  if (problem.bias) {
    const CudnnDescriptor& bias = keep(tensor(kBias, {1, s.o, 1, 1}, type, problem.alignment));
    const CudnnDescriptor& biased = result(kBiasedSum, !problem.relu);
    operations.push_back(pointwise(keep(pointwise_mode(CUDNN_POINTWISE_ADD)), *sum, &bias, biased));
    sum = &biased;
  }
  if (problem.relu)
    operations.push_back(
        pointwise(keep(pointwise_mode(CUDNN_POINTWISE_RELU_FWD)), *sum, nullptr, result(kY, true)));
  graph->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  target.configure(graph->graph);
  graph->graph.finalize();
  std::move(operations.begin(), operations.end(), std::back_inserter(graph->parts));
  return graph;
}

std::vector<std::int64_t> conv2d_ids(const Conv2dProblem& problem) {
  if (problem.bias) return {kX, kFilter, kY, kBias};
  return {kX, kFilter, kY};
}

std::vector<void*> conv2d_pointers(const Conv2dProblem& problem, const Conv2dArrays& arrays) {
  if (problem.bias) return {arrays.x, arrays.filter, arrays.y, arrays.bias};
  return {arrays.x, arrays.filter, arrays.y};
}

namespace {

/// The operation of one direction, and the names of its attributes.
struct OperationAttributes {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, filter, y, alpha, beta;
};

OperationAttributes attributes_of(Conv2dDirection direction) {
  switch (direction) {
    case Conv2dDirection::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Conv2dDirection::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Conv2dDirection::backward_filter: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

}  // namespace

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default:
      fail<UsageError>("cuDNN convolution: found element type {}, expected f32, f16 or bf16",
                       to_string(dtype));
  }
}

CudnnDescriptor tensor(std::int64_t id, const Dims& dims, cudnnDataType_t type, int alignment,
                       InMemory in_memory) {
  const auto [outermost, channels, rows, columns] = dims;
  const Dims strides{rows * columns * channels, 1, columns * channels, channels};
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(dims));
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides));
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{alignment});
  descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, in_memory == InMemory::no);
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor convolution(const ConvSizes& sizes) {
  const std::array<std::int64_t, 2> strides{sizes.stride.height, sizes.stride.width};
  const std::array<std::int64_t, 2> paddings{sizes.padding.height, sizes.padding.width};
  const std::array<std::int64_t, 2> dilations{sizes.dilation.height, sizes.dilation.width};
  CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const std::int64_t>(strides));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const std::int64_t>(paddings));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const std::int64_t>(paddings));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const std::int64_t>(dilations));
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor convolve(Conv2dDirection direction, const CudnnDescriptor& convolution,
                         const CudnnDescriptor& x, const CudnnDescriptor& filter, const CudnnDescriptor& y,
                         GradMode mode) {
  const OperationAttributes names = attributes_of(direction);
  CudnnDescriptor operation(names.operation);
  operation.set(names.convolution, convolution);
  operation.set(names.x, x);
  operation.set(names.filter, filter);
  operation.set(names.y, y);
  operation.set(names.alpha, 1.0f);
  operation.set(names.beta, mode == GradMode::accumulate ? 1.0f : 0.0f);
  operation.finalize();
  return operation;
}

CudnnDescriptor pointwise_mode(cudnnPointwiseMode_t mode) {
  CudnnDescriptor descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_POINTWISE_MODE, mode);
  descriptor.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor pointwise(const CudnnDescriptor& mode, const CudnnDescriptor& x, const CudnnDescriptor* b,
                          const CudnnDescriptor& y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.finalize();
  return operation;
}

}  // namespace convoy::kernels
