#include "engine/nn/module.h"

#include "engine/ops/ops.h"
#include "kernels/base/check.h"
#include "kernels/elementwise.h"
#include "kernels/initial_values.h"

namespace convoy {
namespace {

/// Returns the FNV-1a hash that keys a parameter's draws by its name.
std::uint32_t hash_of(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Returns whether layers cast parameters of this kind to the type of their input. Those of batch norms keep
/// their own type.
bool is_cast(ParameterKind kind) {
  return kind == ParameterKind::filter || kind == ParameterKind::weight || kind == ParameterKind::bias;
}

/// Sets the parameter's value and keeps a low-precision copy if it had one.
void replace_value(const Variable& parameter, const Tensor& value) {
  const Tensor copy = parameter.low_precision_copy();
  parameter.set_value(value);
  if (copy.defined()) parameter.set_low_precision_copy(value.to(copy.dtype()));
}

}  // namespace

template <class F>
void Module::visit(const std::string& path, F&& f) const {
  f(*this, path);
  for (const Child& child : children_) child.module->visit(join_path(path, child.name), f);
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> all = {this};
  for (const Child& child : children_) {
    const std::vector<Module*> below = child.module->modules();
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::vector<NamedParameter> Module::parameters() const {
  std::vector<NamedParameter> all;
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnParameter& own : module.parameters_)
      all.push_back({join_path(path, own.named.name), own.named.variable, own.named.kind});
  });
  return all;
}

std::vector<NamedBuffer> Module::buffers() const {
  std::vector<NamedBuffer> all;
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnBuffer& own : module.buffers_) all.push_back({join_path(path, own.name), *own.tensor});
  });
  return all;
}

Variable Epilogue::apply(const Variable& y) const {
  const Variable sum = residual.defined() ? y + residual : y;
  return relu ? convoy::relu(sum) : sum;
}

Variable Module::forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) {
  return epilogue.apply(forward(x, context));
}

void Module::to(const DeviceContext& device) {
  const auto moved = [&](const Tensor& tensor) {
    if (tensor.context() == device) return tensor;
    Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device);
    copy.copy_from(tensor);
    return copy;
  };
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_)
      replace_value(own.named.variable, moved(own.named.variable.value()));
    for (const OwnBuffer& own : module.buffers_) *own.tensor = moved(*own.tensor);
  });
}

void Module::to(DType dtype) {
  check(is_floating(dtype), "cannot convert a model to {}: expected a floating-point type", to_string(dtype));
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_)
      replace_value(own.named.variable, own.named.variable.value().to(dtype));
    for (const OwnBuffer& own : module.buffers_) *own.tensor = own.tensor->to(dtype);
  });
}

void Module::keep_low_precision_copies(DType dtype) {
  check(is_half(dtype), "cannot keep low-precision copies in {}: expected f16 or bf16", to_string(dtype));
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_)
      if (is_cast(own.named.kind))
        own.named.variable.set_low_precision_copy(own.named.variable.value().to(dtype));
  });
}

void Module::refresh_low_precision_copies() {
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_) {
      const Tensor& copy = own.named.variable.low_precision_copy();
      if (!copy.defined()) continue;
      on(copy.stream(), [&](auto& s) { cast(s, own.named.variable.value().view(), copy.view()); });
    }
  });
}

void Module::initialize(std::uint64_t seed) {
  const DeviceContext host = Device::cpu();
  CpuStream stream;
  const Random random{.seed = seed, .purpose = RandomPurpose::initialization};
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnParameter& own : module.parameters_) {
      const Tensor& value = own.named.variable.value();
      if (own.init.kind == Init::Kind::constant) {
        on(value.stream(), [&](auto& s) { fill(s, own.init.value, value.view()); });
        continue;
      }
      const std::uint32_t key = hash_of(join_path(path, own.named.name));
      const auto draw = own.init.kind == Init::Kind::normal ? draw_normal : draw_uniform;
      // In place if possible: the first touch of newly allocated pages takes longer than the draws.
      if (value.device() == host.device() && value.dtype() == DType::f32) {
        draw(stream, random, key, own.init.value, value.view());
      } else {
        const Tensor draws = Tensor::empty(value.shape(), DType::f64, host);
        draw(stream, random, key, own.init.value, draws.view());
        value.copy_from(draws.to(value.dtype()));
      }
    }
    for (const OwnBuffer& own : module.buffers_)
      own.tensor->copy_from(Tensor::full(own.tensor->shape(), own.initial, own.tensor->dtype(), host));
  });
  refresh_low_precision_copies();
}

Variable Module::add_parameter(std::string name, const Shape& shape, ParameterKind kind, Init init) {
  Variable variable(Tensor::zeros(shape, DType::f32, Device::cpu()), true);
  parameters_.push_back({{std::move(name), variable, kind}, init});
  return variable;
}

std::shared_ptr<Tensor> Module::add_buffer(std::string name, const Shape& shape, double value) {
  auto tensor = std::make_shared<Tensor>(Tensor::full(shape, value, DType::f32, Device::cpu()));
  buffers_.push_back({std::move(name), tensor, value});
  return tensor;
}

Module::Inferred Module::infer_layer(const Shape& input) const { return {input, 0}; }

Shape Module::infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const {
  try {
    const Inferred inferred = infer_layer(input);
    if (rows != nullptr) {
      std::int64_t parameters = 0;
      for (const OwnParameter& own : parameters_) parameters += own.named.variable.value().numel();
      rows->push_back({path, describe(), inferred.output, parameters, inferred.flops});
    }
    return inferred.output;
  } catch (const UsageError& error) {
    fail<UsageError>("{} ({}): {}", path, describe(), error.what());
  }
}

}  // namespace convoy
