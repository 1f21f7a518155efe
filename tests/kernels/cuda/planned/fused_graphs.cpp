#include "tests/kernels/cuda/planned/fused_graphs.h"

#include <algorithm>
#include <iterator>
#include <utility>

/// As kernels::cudnn_type(), in the namespace of the argument, where CudnnDescriptor::set() finds it.
constexpr cudnnBackendAttributeType_t cudnn_type(const cudnnGenStatsMode_t* /*values*/) {
  return CUDNN_TYPE_GENSTATS_MODE;
}

namespace convoy::testing {
namespace {

using kernels::CudnnDescriptor;
using kernels::Dims;
using kernels::InMemory;

/// A graph that is being built. Every tensor gets the next id.
class Builder {
 public:
  explicit Builder(DType dtype) : type_(kernels::cudnn_type(dtype)) {}

  /// An array of the graph's type.
  const CudnnDescriptor& array(const Dims& dims) { return add(dims, type_, InMemory::yes); }
  /// One f32 number per channel.
  const CudnnDescriptor& per_channel(std::int64_t channels) {
    return add({1, channels, 1, 1}, CUDNN_DATA_FLOAT, InMemory::yes);
  }
  const CudnnDescriptor& between(const Dims& dims) { return add(dims, CUDNN_DATA_FLOAT, InMemory::no); }
  const CudnnDescriptor& keep(CudnnDescriptor part) { return graph_->parts.emplace_back(std::move(part)); }

  void convolve(kernels::Conv2dDirection direction, const kernels::ConvSizes& sizes, const CudnnDescriptor& x,
                const CudnnDescriptor& filter, const CudnnDescriptor& y) {
    operations_.push_back(kernels::convolve(direction, keep(kernels::convolution(sizes)), x, filter, y));
  }
  void pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& x, const CudnnDescriptor* b,
                 const CudnnDescriptor& y) {
    operations_.push_back(kernels::pointwise(keep(kernels::pointwise_mode(mode)), x, b, y));
  }
  void operation(CudnnDescriptor finalized) { operations_.push_back(std::move(finalized)); }

  std::shared_ptr<const kernels::CudnnGraph> finish(const kernels::CudnnTarget& target) {
    graph_->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    target.configure(graph_->graph);
    graph_->graph.finalize();
    std::move(operations_.begin(), operations_.end(), std::back_inserter(graph_->parts));
    return graph_;
  }

 private:
  const CudnnDescriptor& add(const Dims& dims, cudnnDataType_t type, InMemory in_memory) {
    return keep(kernels::tensor(++last_id_, dims, type, kernels::kCudnnAlignment, in_memory));
  }

  cudnnDataType_t type_;
  std::int64_t last_id_ = 0;
  std::shared_ptr<kernels::CudnnGraph> graph_ = std::make_shared<kernels::CudnnGraph>();
  std::vector<CudnnDescriptor> operations_;
};

/// Returns the operation dx = dy where the ReLU's output is positive, else 0.
CudnnDescriptor relu_gradient(const CudnnDescriptor& mode, const CudnnDescriptor& output,
                              const CudnnDescriptor& dy, const CudnnDescriptor& dx) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, output);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
  operation.finalize();
  return operation;
}

CudnnDescriptor channel_sums(const CudnnDescriptor& y, const CudnnDescriptor& sums,
                             const CudnnDescriptor& sums_of_squares) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums);
  operation.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, sums_of_squares);
  operation.finalize();
  return operation;
}

}  // namespace

std::string to_string(FusedGraph fused) {
  switch (fused) {
    case FusedGraph::scale_bias_add_relu: return "conv + scale + bias + add + ReLU";
    case FusedGraph::relu_gradient: return "data gradient + ReLU gradient";
    case FusedGraph::channel_sums: break;
  }
  return "conv + channel sums";
}

std::shared_ptr<const kernels::CudnnGraph> make_fused_graph(const kernels::CudnnTarget& target,
                                                            FusedGraph fused, DType dtype,
                                                            const kernels::ConvSizes& s) {
  Builder graph(dtype);
  const Dims x_dims{s.n, s.i, s.h, s.w}, y_dims{s.n, s.o, s.oh, s.ow};
  const CudnnDescriptor& x = fused == FusedGraph::relu_gradient ? graph.between(x_dims) : graph.array(x_dims);
  const CudnnDescriptor& filter = graph.array({s.o, s.group_inputs(), s.kh, s.kw});
  const CudnnDescriptor& y =
      fused == FusedGraph::scale_bias_add_relu ? graph.between(y_dims) : graph.array(y_dims);
  graph.convolve(fused == FusedGraph::relu_gradient ? kernels::Conv2dDirection::backward_data
                                                    : kernels::Conv2dDirection::forward,
                 s, x, filter, y);
  switch (fused) {
    case FusedGraph::scale_bias_add_relu: {
      const CudnnDescriptor& scaled = graph.between(y_dims);
      const CudnnDescriptor& biased = graph.between(y_dims);
      const CudnnDescriptor& sum = graph.between(y_dims);
      graph.pointwise(CUDNN_POINTWISE_MUL, y, &graph.per_channel(s.o), scaled);
      graph.pointwise(CUDNN_POINTWISE_ADD, scaled, &graph.per_channel(s.o), biased);
      graph.pointwise(CUDNN_POINTWISE_ADD, biased, &graph.array(y_dims), sum);
      graph.pointwise(CUDNN_POINTWISE_RELU_FWD, sum, nullptr, graph.array(y_dims));
      break;
    }
    case FusedGraph::relu_gradient:
      graph.operation(relu_gradient(graph.keep(kernels::pointwise_mode(CUDNN_POINTWISE_RELU_BWD)),
                                    graph.array(x_dims), x, graph.array(x_dims)));
      break;
    case FusedGraph::channel_sums:
      graph.operation(channel_sums(y, graph.per_channel(s.o), graph.per_channel(s.o)));
      break;
  }
  return graph.finish(target);
}

}  // namespace convoy::testing
