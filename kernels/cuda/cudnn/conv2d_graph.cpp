// Describes a convolution to cuDNN as an operation graph.
#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cuda/cudnn/operations.h"

namespace convoy::kernels {
namespace {

/// The unique ids of a graph's tensors.
enum : std::int64_t { kX = 1, kFilter, kBias, kY, kSum, kBiasedSum };

}  // namespace

std::size_t Conv2dProblem::result_bytes() const {
  const ConvSizes& s = sizes;
  const std::int64_t elements = direction == Conv2dDirection::forward ? s.n * s.oh * s.ow * s.o
                                : direction == Conv2dDirection::backward_data
                                    ? s.n * s.h * s.w * s.i
                                    : s.o * s.kh * s.kw * s.group_inputs();
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

Conv2dProblem Conv2dProblem::without_epilogue() const {
  Conv2dProblem plain = *this;
  plain.bias = plain.relu = false;
  return plain;
}

std::string Conv2dProblem::text() const {
  const char* const name = direction == Conv2dDirection::forward         ? "forward"
                           : direction == Conv2dDirection::backward_data ? "backward data"
                                                                         : "backward filter";
  std::string text =
      fmt::format("conv2d {} {} n{} {}x{}x{} k{} {}x{} s{} p{}", name, to_string(dtype), sizes.n, sizes.h,
                  sizes.w, sizes.i, sizes.o, sizes.kh, sizes.kw, sizes.stride, sizes.padding);
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

}  // namespace convoy::kernels
