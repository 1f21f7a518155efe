// Convolutions, matrix multiplications, normalizations, pooling and losses.
#include "tests/testing/op_cases/model_ops.h"

#include <fmt/format.h>

namespace convoy::testing {
namespace {

std::string suffix(bool bias, bool residual, bool relu) {
  return std::string(bias ? "_bias" : "") + (residual ? "_residual" : "") + (relu ? "_relu" : "");
}

/// Returns kept() of a tensor filled with `value`.
std::function<Tensor(const DeviceContext&)> kept_full(const Shape& shape, double value, DType dtype) {
  return kept([=](const DeviceContext& device) { return Tensor::full(shape, value, dtype, device); });
}

/// A process group of one rank, which has the whole batch.
class SingleRankGroup final : public ProcessGroup {
 public:
  int size() const override { return 1; }
  void all_gather(const Tensor& local, const Tensor& gathered) override {
    gathered.reshape(local.shape()).copy_from(local);
  }
  void all_reduce(const Tensor&) override {}
};

}  // namespace

std::function<Tensor(const DeviceContext&)> kept(std::function<Tensor(const DeviceContext&)> make) {
  return [make = std::move(make), tensor = Tensor()](const DeviceContext& device) mutable {
    if (!tensor.defined() || tensor.context() != device) tensor = make(device);
    return tensor;
  };
}

void ModelOps::add(OpCase op, std::vector<Argument> arguments, int count) {
  std::vector<Variable> x;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    x.emplace_back(Tensor::empty(op.inputs[i], arguments[i].dtype, Device::meta()),
                   arguments[i].wants_gradient);
  const OpCost cost = recorded_cost(op.op(x));
  cases_.push_back({.network = network_,
                    .op = std::move(op),
                    .arguments = std::move(arguments),
                    .count = count,
                    .cost = cost});
}

void ModelOps::op_case(OpCase op) {
  for (std::size_t axis = 1; axis < op.benchmark[0].sizes().size(); ++axis)
    op.name += fmt::format("{}{}", axis == 1 ? "_" : "x", op.benchmark[0].sizes()[axis]);
  op.inputs.clear();
  for (const Shape& shape : op.benchmark) {
    std::vector<std::int64_t> sizes(shape.sizes().begin(), shape.sizes().end());
    if (sizes.size() > 1 && sizes[0] == 128) sizes[0] = sizing_.batch;
    op.inputs.emplace_back(sizes);
  }
  std::vector<Argument> arguments(op.inputs.size(), activation());
  add(std::move(op), std::move(arguments));
}

void ModelOps::conv2d(const ConvolutionSizes& sizes, int count) {
  const Conv2dOptions options{.stride = sizes.stride, .padding = sizes.padding, .relu = sizes.relu};
  const Shape x = map(sizes.side, sizes.in);
  const Shape filter{sizes.out, sizes.kernel, sizes.kernel, sizes.in};
  Argument images = activation();
  images.wants_gradient = !sizes.of_images;
  OpCase op{.name = fmt::format("conv2d_{0}x{0}_{1}x{2}_{3}px{4}{5}", sizes.kernel, sizes.in, sizes.out,
                                sizes.side, sizes.stride == 1 ? "" : fmt::format("_stride{}", sizes.stride),
                                suffix(sizes.bias, false, sizes.relu)),
            .inputs = {x, filter},
            .op = [options](std::span<const Variable> in) {
              return convoy::conv2d(in[0], in[1], in.size() > 2 ? in[2] : Variable(), options);
            }};
  std::vector<Argument> arguments = {
      images, {.dtype = sizing_.dtype, .is_parameter = true, .wants_gradient = !sizes.frozen}};
  if (sizes.bias) {
    op.inputs.push_back({sizes.out});
    arguments.push_back({.dtype = sizing_.dtype, .is_parameter = true});
  }
  add(std::move(op), std::move(arguments), count);
}

void ModelOps::linear(const LinearSizes& sizes) {
  OpCase op{.name = fmt::format("linear_{}x{}{}", sizes.in, sizes.out, suffix(sizes.bias, false, sizes.relu)),
            .inputs = {{sizing_.batch, sizes.in}, {sizes.out, sizes.in}},
            .op = [relu = sizes.relu](std::span<const Variable> in) {
              return convoy::linear(in[0], in[1], in.size() > 2 ? in[2] : Variable(), relu);
            }};
  const Argument parameter{.dtype = sizing_.dtype, .is_parameter = true};
  std::vector<Argument> arguments = {activation(), parameter};
  if (sizes.bias) op.inputs.push_back({sizes.out}), arguments.push_back(parameter);
  add(std::move(op), std::move(arguments));
}

void ModelOps::matmul(std::int64_t side, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = sizing_.batch * side * side;
  add({.name = fmt::format("matmul_{}x{}_{}px", in, out, side),
       .inputs = {{rows, in}, {in, out}},
       .op = [](std::span<const Variable> x) { return convoy::matmul(x[0], x[1]); }},
      {activation(), {.dtype = sizing_.dtype, .is_parameter = true}});
}

void ModelOps::batch_norm(const NormSizes& sizes, int count) {
  const Shape x = map(sizes.side, sizes.channels);
  // Parameters and statistics are f32 if the activations are half precision.
  const DType statistics_type = is_half(sizing_.dtype) ? DType::f32 : sizing_.dtype;
  const BatchNormOptions options{.epsilon = sizes.epsilon,
                                 .momentum = sizes.momentum,
                                 .activation = sizes.relu ? FusedActivation::relu : FusedActivation::none};
  OpCase op{.name = fmt::format("batch_norm_{}_{}px{}", sizes.channels, sizes.side,
                                suffix(false, sizes.residual, sizes.relu)),
            .inputs = {x, {sizes.channels}, {sizes.channels}},
            .op = [options, mean = kept_full({sizes.channels}, 0, statistics_type),
                   var = kept_full({sizes.channels}, 1, statistics_type)](std::span<const Variable> in) {
              const DeviceContext& device = in[0].context();
              return convoy::batch_norm(in[0], in[1], in[2], {mean(device), var(device)}, true, options,
                                        in.size() > 3 ? in[3] : Variable());
            }};
  std::vector<Argument> arguments = {
      activation(),
      {.dtype = statistics_type, .is_parameter = true, .wants_gradient = !sizes.fixed_scale},
      {.dtype = statistics_type, .is_parameter = true}};
  if (sizes.residual) op.inputs.push_back(x), arguments.push_back(activation());
  add(std::move(op), std::move(arguments), count);
}

void ModelOps::sync_batch_norm(std::int64_t side, std::int64_t channels) {
  const DType statistics_type = is_half(sizing_.dtype) ? DType::f32 : sizing_.dtype;
  const Argument parameter{.dtype = statistics_type, .is_parameter = true};
  const Shape x = map(side, channels);
  add({.name = fmt::format("sync_batch_norm_{}_{}px", channels, side),
       .inputs = {x, {channels}, {channels}},
       .op =
           [mean = kept_full({channels}, 0, statistics_type), var = kept_full({channels}, 1, statistics_type),
            group = std::make_shared<SingleRankGroup>()](std::span<const Variable> in) {
             const DeviceContext& device = in[0].context();
             return convoy::sync_batch_norm(in[0], in[1], in[2], {mean(device), var(device)}, group);
           }},
      {activation(), parameter, parameter});
}

void ModelOps::pooling(const char* name, Variable (*op)(const Variable&, Pool2dOptions), std::int64_t side,
                       std::int64_t channels, Pool2dOptions options) {
  add({.name = fmt::format("{0}_{1}x{1}_{2}_{3}px", name, options.kernel.height, channels, side),
       .inputs = {map(side, channels)},
       .op = [op, options](std::span<const Variable> in) { return op(in[0], options); }},
      {activation()});
}

void ModelOps::loss(std::string name, std::int64_t classes, double smoothing) {
  const std::int64_t batch = sizing_.batch;
  const auto labels = kept([=](const DeviceContext& device) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(batch));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>((7 * i + 1) % static_cast<std::size_t>(classes));
    return Tensor::from(values, {batch}, device);
  });
  const bool sum_only = name == "cross_entropy_sum";
  add({.name = fmt::format("{}_{}", name, classes),
       .inputs = {{batch, classes}},
       .op =
           [=](std::span<const Variable> x) {
             const Tensor targets = labels(x[0].context());
             return sum_only ? convoy::cross_entropy_sum(x[0], targets, smoothing)
                             : convoy::cross_entropy(x[0], targets, {.smoothing = smoothing}).loss;
           }},
      {activation()});
}

// Elementwise operations, reductions and changes of shape.

void ModelOps::unary(std::string name, Unary op, std::int64_t side, std::int64_t channels, int count,
                     const Domain& domain) {
  add({.name = fmt::format("{}_{}_{}px", name, channels, side),
       .inputs = {map(side, channels)},
       .op = [op](std::span<const Variable> in) { return op(in[0]); },
       .domain = domain},
      {activation()}, count);
}

void ModelOps::scaled(std::string name, const Shape& shape, DType dtype, double a) {
  add({.name = std::move(name),
       .inputs = {shape},
       .op = [a](std::span<const Variable> x) { return convoy::scale(x[0], a); }},
      {{.dtype = dtype}});
}

void ModelOps::scale(std::int64_t columns, double a) {
  scaled(fmt::format("scale_{}", columns), {sizing_.batch, columns}, sizing_.dtype, a);
}

void ModelOps::scale_loss() {
  // The loss of half-precision logits is f32.
  const DType dtype = is_half(sizing_.dtype) ? DType::f32 : sizing_.dtype;
  scaled("scale_loss", {1}, dtype, 1 / static_cast<double>(sizing_.batch));
}

void ModelOps::dropout(std::int64_t side, std::int64_t channels) {
  const auto ids = kept([batch = sizing_.batch](const DeviceContext& device) {
    return Tensor::full({batch}, 7, DType::i32, device);
  });
  add({.name = fmt::format("dropout_{}_{}px", channels, side),
       .inputs = {map(side, channels)},
       .op =
           [ids](std::span<const Variable> in) {
             return convoy::dropout(in[0], ids(in[0].context()), 0.1, {.purpose = RandomPurpose::dropout});
           }},
      {activation()});
}

void ModelOps::cast(std::int64_t side, std::int64_t channels) {
  const DType to = sizing_.dtype == DType::f32 ? DType::bf16 : DType::f32;
  add({.name = fmt::format("cast_to_{}_{}_{}px", to_string(to), channels, side),
       .inputs = {map(side, channels)},
       .op = [to](std::span<const Variable> in) { return convoy::cast(in[0], to); }},
      {activation()});
}

void ModelOps::reshape(std::int64_t side, std::int64_t channels) {
  const Shape rows{sizing_.batch * side * side, channels};
  add({.name = fmt::format("reshape_{}_{}px", channels, side),
       .inputs = {map(side, channels)},
       .op = [rows](std::span<const Variable> in) { return convoy::reshape(in[0], rows); }},
      {activation()});
}

}  // namespace convoy::testing
