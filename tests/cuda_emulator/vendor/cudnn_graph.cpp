#include "tests/cuda_emulator/vendor/cudnn_graph.h"

#include <algorithm>

namespace convoy::emulator {
namespace {

bool all_at_least(const std::vector<std::int64_t>& values, std::int64_t minimum) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t value) { return value >= minimum; });
}

const Tensor& tensor(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  return descriptor.nested(name).as<Tensor>();
}

/// Checks the sizes of input, filter and output along one spatial dimension.
void check_size(const ConvolutionOperation& op, std::size_t axis) {
  const Convolution& c = op.convolution;
  const std::int64_t window = (op.w.dims[axis + 2] - 1) * c.dilations[axis] + 1;
  const std::int64_t room = op.x.dims[axis + 2] + c.pre_paddings[axis] + c.post_paddings[axis] - window;
  require(room >= 0 && op.y.dims[axis + 2] == room / c.strides[axis] + 1,
          "the output's spatial size does not match the convolution");
}

void check_shapes(const ConvolutionOperation& op) {
  const std::size_t spatial = op.convolution.strides.size();
  for (const Tensor* const one : {&op.x, &op.w, &op.y})
    require(one->dims.size() == spatial + 2,
            "the number of dimensions of a tensor does not match the convolution");
  require(op.x.dims[0] == op.y.dims[0], "the batch sizes of input and output differ");
  require(op.y.dims[1] == op.w.dims[0], "the output's channels do not match the number of filters");
  require(op.x.dims[1] % op.w.dims[1] == 0, "the filter's channels do not divide the input's");
  require(op.w.dims[0] % op.groups() == 0, "the number of groups does not divide the number of filters");
  for (std::size_t axis = 0; axis < spatial; ++axis) check_size(op, axis);
}

void check_ids(const std::vector<Tensor>& tensors) {
  for (const Tensor& one : tensors)
    for (const Tensor& other : tensors)
      if (one.id == other.id && !(one == other))
        refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
               "two tensors have the id " + std::to_string(one.id));
}

/// Returns how often the tensor occurs.
std::ptrdiff_t uses(const std::vector<Tensor>& tensors, std::int64_t id) {
  return std::count_if(tensors.begin(), tensors.end(), [&](const Tensor& one) { return one.id == id; });
}

void check_virtual(const std::vector<Operation>& operations) {
  std::vector<Tensor> read, written;
  for (const Operation& op : operations) {
    std::vector<Tensor> all = tensors_of(op);
    for (const Tensor& input : std::vector<Tensor>(all.begin(), all.end() - 1)) {
      require(!input.is_virtual || uses(written, input.id) == 1,
              "tensor " + std::to_string(input.id) + " is virtual, but no earlier operation writes it");
      read.push_back(input);
    }
    require(uses(written, all.back().id) == 0, "two operations write the same tensor");
    require(uses(read, all.back().id) == 0, "an operation writes a tensor that it or an earlier one reads");
    written.push_back(all.back());
  }
  for (const Tensor& output : written)
    require(!output.is_virtual || uses(read, output.id) > 0,
            "tensor " + std::to_string(output.id) + " is virtual, but no operation reads it");
}

}  // namespace

Element Tensor::element() const {
  switch (type) {
    case CUDNN_DATA_HALF: return Element::f16;
    case CUDNN_DATA_BFLOAT16: return Element::bf16;
    case CUDNN_DATA_FLOAT: return Element::f32;
    case CUDNN_DATA_DOUBLE: return Element::f64;
  }
  refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "unknown data type");
}

std::size_t Tensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) last += (dims[axis] - 1) * strides[axis];
  return (static_cast<std::size_t>(last) + 1) * size_of(element());
}

const Tensor& ConvolutionOperation::output() const {
  return direction == Direction::forward ? y : direction == Direction::data ? x : w;
}

ConvolutionShape ConvolutionOperation::shape() const {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const Convolution& c = convolution;
  return {.n = number(x.dims[0]),
          .h = number(x.dims[2]),
          .w = number(x.dims[3]),
          .c = number(x.dims[1]),
          .k = number(w.dims[0]),
          .r = number(w.dims[2]),
          .s = number(w.dims[3]),
          .oh = number(y.dims[2]),
          .ow = number(y.dims[3]),
          .stride_h = number(c.strides[0]),
          .stride_w = number(c.strides[1]),
          .padding_h = number(c.pre_paddings[0]),
          .padding_w = number(c.pre_paddings[1]),
          .dilation_h = number(c.dilations[0]),
          .dilation_w = number(c.dilations[1])};
}

std::vector<Tensor> tensors_of(const Operation& operation) {
  if (const auto* const op = std::get_if<PointwiseOperation>(&operation))
    return op->b.has_value() ? std::vector{op->x, *op->b, op->y} : std::vector{op->x, op->y};
  const auto& op = std::get<ConvolutionOperation>(operation);
  switch (op.direction) {
    case Direction::forward: return {op.x, op.w, op.y};
    case Direction::data: return {op.y, op.w, op.x};
    case Direction::filter: break;
  }
  return {op.x, op.y, op.w};
}

Tensor make_tensor(const Descriptor& descriptor) {
  Tensor made{.id = descriptor.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
              .type = descriptor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
              .dims = descriptor.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
              .strides = descriptor.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
              .alignment = descriptor.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)};
  if (descriptor.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL))
    made.is_virtual = descriptor.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  require(made.dims.size() == made.strides.size(), "a tensor needs as many strides as dimensions");
  require(all_at_least(made.dims, 1), "a tensor has a dimension below 1");
  require(all_at_least(made.strides, 1), "a tensor has a stride below 1");
  const auto size = static_cast<std::int64_t>(size_of(made.element()));
  require(made.alignment > 0 && made.alignment % size == 0,
          "a tensor's alignment is not a multiple of its element size");
  return made;
}

Convolution make_convolution(const Descriptor& descriptor) {
  const auto numbers = [&](cudnnBackendAttributeName_t name) {
    return descriptor.values<std::int64_t>(name);
  };
  Convolution made{.compute = descriptor.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE),
                   .mode = descriptor.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE),
                   .strides = numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                   .dilations = numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS),
                   .pre_paddings = numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                   .post_paddings = numbers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)};
  const auto spatial =
      static_cast<std::size_t>(descriptor.value<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (const auto* const one : {&made.strides, &made.dilations, &made.pre_paddings, &made.post_paddings})
    require(one->size() == spatial, "a convolution needs one value per spatial dimension");
  require(all_at_least(made.strides, 1), "a convolution's stride is below 1");
  require(all_at_least(made.dilations, 1), "a convolution's dilation is below 1");
  require(all_at_least(made.pre_paddings, 0) && all_at_least(made.post_paddings, 0),
          "a convolution's padding is below 0");
  return made;
}

Pointwise make_pointwise(const Descriptor& descriptor) {
  return {.mode = descriptor.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE),
          .compute = descriptor.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC),
          .lower_clip = descriptor.number(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0)};
}

ConvolutionOperation make_convolution_operation(const Descriptor& descriptor) {
  struct Names {
    cudnnBackendAttributeName_t x, w, y, alpha, beta, convolution;
  };
  Names names{
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
  Direction direction = Direction::forward;
  if (descriptor.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    direction = Direction::data;
    names = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC};
  } else if (descriptor.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
    direction = Direction::filter;
    names = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC};
  }
  ConvolutionOperation made{.direction = direction,
                            .x = tensor(descriptor, names.x),
                            .w = tensor(descriptor, names.w),
                            .y = tensor(descriptor, names.y),
                            .convolution = descriptor.nested(names.convolution).as<Convolution>(),
                            .alpha = descriptor.number(names.alpha, 1),
                            .beta = descriptor.number(names.beta, 0)};
  check_shapes(made);
  return made;
}

PointwiseOperation make_pointwise_operation(const Descriptor& descriptor) {
  PointwiseOperation made{
      .pointwise = descriptor.nested(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR).as<Pointwise>(),
      .x = tensor(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
      .b = {},
      .y = tensor(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
      .alpha1 = descriptor.number(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1),
      .alpha2 = descriptor.number(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1)};
  const bool is_binary = made.pointwise.mode == CUDNN_POINTWISE_ADD;
  require(is_binary == descriptor.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
          "an addition needs a second operand, a ReLU must not have one");
  if (is_binary) {
    made.b = tensor(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    require(made.b->dims.size() == made.x.dims.size(), "the operands have different numbers of dimensions");
    for (std::size_t axis = 0; axis < made.x.dims.size(); ++axis)
      require(made.b->dims[axis] == 1 || made.b->dims[axis] == made.x.dims[axis],
              "the second operand's size is neither 1 nor that of the first");
  }
  require(made.y.dims == made.x.dims, "the shapes of input and output differ");
  return made;
}

Graph make_graph(const Descriptor& descriptor, int gpu) {
  Graph made{.gpu = gpu, .operations = {}};
  std::vector<Tensor> tensors;
  for (const DescriptorPtr& one : descriptor.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    if (one->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      made.operations.emplace_back(one->as<PointwiseOperation>());
    else
      made.operations.emplace_back(one->as<ConvolutionOperation>());
    for (const Tensor& each : tensors_of(made.operations.back())) tensors.push_back(each);
  }
  check_ids(tensors);
  check_virtual(made.operations);
  return made;
}

}  // namespace convoy::emulator
