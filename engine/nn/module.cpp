#include "convoy/engine/nn/module.h"

#include <algorithm>
#include <utility>

#include "convoy/engine/autograd/op_observer.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/initial_values.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy::nn {
namespace {

/// A UsageError whose message begins with the path of the module that threw it.
struct ModuleError : UsageError {
  using UsageError::UsageError;
};

/// Returns `path` and `name` joined by a dot, or `name` if the path is empty.
std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::span<const Variable> as_span(const Variable& x) { return {&x, 1}; }
std::span<const Variable> as_span(const Variables& list) { return list; }

/// Sets the parameter's value and keeps a low-precision copy if it had one.
void replace_value(const Variable& parameter, const Tensor& value) {
  const Tensor copy = parameter.low_precision_copy();
  parameter.set_value(value);
  if (copy.defined()) parameter.set_low_precision_copy(value.to(copy.dtype()));
}

bool is_zero(const Tensor& values) {
  const std::vector<double> all = values.to(Device::cpu()).to(DType::f64).to_vector<double>();
  return std::ranges::all_of(all, [](double value) { return value == 0; });
}

/// Changes the first filters of a host tensor [O, kH, kW, I] as Init::dirac says.
void set_dirac(const Tensor& filter) {
  const Shape& shape = filter.shape();
  const std::int64_t area = shape[1] * shape[2], channels = shape[3];
  const std::int64_t center = shape[1] / 2 * shape[2] + shape[2] / 2;
  for (std::int64_t i = 0; i < std::min(shape[0], channels); ++i) {
    std::vector<double> values(static_cast<std::size_t>(area * channels));
    values[static_cast<std::size_t>(center * channels + i)] = 1;
    filter.rows(i, i + 1).copy_from(Tensor::from(values, {1, shape[1], shape[2], channels}, Device::cpu()));
  }
}

}  // namespace

std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

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
  initialize_missing();
  std::vector<NamedParameter> all;
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnParameter& own : module.parameters_)
      all.push_back({join_path(path, own.named.name), own.named.variable, own.named.kind});
  });
  return all;
}

std::vector<NamedBuffer> Module::buffers() const {
  initialize_missing();
  std::vector<NamedBuffer> all;
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnBuffer& own : module.buffers_)
      all.push_back({join_path(path, own.name), *own.tensor, own.kind});
  });
  return all;
}

Variable for_input(const Variable& parameter, const Variable& x) {
  return parameter.defined() && is_half(x.dtype()) ? cast(parameter, x.dtype()) : parameter;
}

Variable Epilogue::apply(const Variable& y) const {
  const Variable sum = residual.defined() ? y + residual : y;
  switch (activation) {
    case FusedActivation::none: break;
    case FusedActivation::relu: return relu(sum);
    case FusedActivation::gelu: return gelu(sum);
  }
  return sum;
}

HookHandle& HookHandle::operator=(HookHandle&& other) noexcept {
  if (this == &other) return *this;
  remove();
  hooks_ = std::exchange(other.hooks_, {});
  hook_ = other.hook_;
  return *this;
}

void HookHandle::remove() {
  if (const std::shared_ptr<Hooks> hooks = hooks_.lock()) hooks->erase(hook_);
  hooks_.reset();
}

HookHandle Module::add_forward_hook(ForwardHook hook) {
  return {hooks_, hooks_->insert(hooks_->end(), std::move(hook))};
}

void Module::call_hooks(std::span<const Variable> inputs, std::span<Variable> outputs) const {
  if (hooks_->empty()) return;
  const HookHandle::Hooks hooks = *hooks_;  // a hook may remove itself
  for (const ForwardHook& hook : hooks) hook(*this, inputs, outputs);
}

template <class F>
auto Module::call(std::span<const Variable> inputs, const ForwardContext& context, const Epilogue& fused,
                  F&& compute) {
  const NamedRange range(path_.empty() ? "model" : std::string_view(path_));
  const ModuleScope scope(path_);
  try {
    const std::size_t row_count = context.rows == nullptr ? 0 : context.rows->size();
    const bool has_data =
        !inputs.empty() && inputs.front().defined() && inputs.front().device().kind != DeviceKind::meta;
    if (!is_initialized_ && has_data) initialize_missing();
    const auto outputs = compute();
    if (context.rows != nullptr && (children_.empty() || !parameters_.empty())) {
      LayerSummary row = row_of(inputs, as_span(outputs), fused);
      for (const LayerSummary& below : std::span(*context.rows).subspan(row_count)) row.flops -= below.flops;
      context.rows->push_back(std::move(row));
    }
    return outputs;
  } catch (const ModuleError&) {
    throw;
  } catch (const UsageError& error) {
    fail<ModuleError>("{}: {}", path_.empty() ? describe() : fmt::format("{} ({})", path_, describe()),
                      error.what());
  }
}

Variable Module::operator()(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) {
  const Epilogue fused = fuses(epilogue) && !has_forward_hooks() ? epilogue : Epilogue();
  return call(as_span(x), context, fused, [&] {
    Variable y = forward_with(x, context, fused);
    call_hooks(as_span(x), std::span(&y, 1));
    return fused.is_empty() ? epilogue.apply(y) : y;
  });
}

Variables Module::operator()(const Variables& inputs, const ForwardContext& context) {
  return call(inputs, context, Epilogue(), [&] {
    Variables outputs = forward_all(inputs, context);
    call_hooks(inputs, outputs);
    return outputs;
  });
}

LayerSummary Module::row_of(std::span<const Variable> inputs, std::span<const Variable> outputs,
                            const Epilogue& fused) const {
  std::string type = describe();
  if (fused.residual.defined()) type += " + residual";
  if (fused.activation == FusedActivation::relu) type += " + ReLU";
  if (fused.activation == FusedActivation::gelu) type += " + GELU";
  LayerSummary row{.name = path_, .type = std::move(type)};
  for (const Variable& output : outputs) row.outputs.push_back(output.shape());
  for (const OwnParameter& own : parameters_) row.parameters += own.named.variable.shape().numel();
  Variables before(inputs.begin(), inputs.end());
  before.push_back(fused.residual);
  row.flops = recorded_cost(outputs, before).forward.flops;
  return row;
}

Variables Module::infer(const std::vector<InputType>& inputs, std::vector<LayerSummary>* rows) {
  const RecordingScope recording;      // also inside NoGrad: the outputs have a cost
  std::optional<DType> of_parameters;  // without parameters(), which would draw values
  visit("", [&](const Module& module, const std::string&) {
    if (!of_parameters && !module.parameters_.empty())
      of_parameters = module.parameters_.front().named.variable.dtype();
  });
  Variables on_meta;
  for (const InputType& input : inputs) {
    const DType dtype = input.dtype.value_or(of_parameters.value_or(DType::f32));
    // It requires a gradient if it can, so that every op is recorded with its cost.
    on_meta.emplace_back(Tensor::empty(input.shape, dtype, Device::meta()), is_floating(dtype));
  }
  return (*this)(on_meta, {.rows = rows});
}

Variable Module::forward(const Variable&, const ForwardContext&) {
  fail<UsageError>("found a call with one input, expected a call with a list: the module has no forward()");
}

Variables Module::forward_all(const Variables& inputs, const ForwardContext& context) {
  check(inputs.size() == 1, "found {} inputs, expected 1", inputs.size());
  return {forward_with(inputs.front(), context, {})};
}

Variable Module::forward_with(const Variable& x, const ForwardContext& context, const Epilogue&) {
  return forward(x, context);
}

template <class F>
void Module::change_values(F&& changed) {
  initialize_missing();
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_) {
      own.named.variable.wait_ready();
      replace_value(own.named.variable, changed(own.named.variable.value()));
    }
    for (const OwnBuffer& own : module.buffers_) *own.tensor = changed(*own.tensor);
  });
}

void Module::to(const DeviceContext& device) {
  change_values([&](const Tensor& tensor) {
    if (tensor.context() == device) return tensor;
    Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype(), device);
    copy.copy_from(tensor);
    return copy;
  });
}

void Module::to(DType dtype) {
  check(is_floating(dtype), "cannot convert a model to {}: expected a floating-point type", to_string(dtype));
  change_values([&](const Tensor& tensor) { return tensor.to(dtype); });
}

void Module::keep_low_precision_copies(DType dtype) {
  check(is_half(dtype), "cannot keep low-precision copies in {}: expected f16 or bf16", to_string(dtype));
  for (const NamedParameter& parameter : parameters()) {
    parameter.variable.wait_ready();
    // Layers cast these to the type of their input. Norms compute in the type of their own parameters.
    if (parameter.kind != ParameterKind::norm_scale && parameter.kind != ParameterKind::norm_shift)
      parameter.variable.set_low_precision_copy(parameter.variable.value().to(dtype));
  }
}

void Module::refresh_low_precision_copies() {
  for (const NamedParameter& parameter : parameters()) {
    parameter.variable.wait_ready();
    const Tensor& copy = parameter.variable.low_precision_copy();
    if (!copy.defined()) continue;
    on(copy.stream(), [&](auto& s) { kernels::cast(s, parameter.variable.value().view(), copy.view()); });
  }
}

void Module::initialize(std::uint64_t seed) {
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnParameter& own : module.parameters_) {
      own.named.variable.wait_ready();
      fill(own.named.variable.value(), own.init, seed, join_path(path, own.named.name));
    }
    for (const OwnBuffer& own : module.buffers_) fill(*own.tensor, own.init, seed, join_path(path, own.name));
    module.is_initialized_ = true;
  });
  refresh_low_precision_copies();
}

void Module::initialize_missing() const {
  const auto draw = [](const Tensor& value, const Init& init, const std::string& name) {
    if (init.kind != Init::Kind::constant && is_zero(value)) fill(value, init, kInitialSeed, name);
  };
  visit(path_, [&](const Module& module, const std::string& path) {
    if (module.is_initialized_) return;
    for (const OwnParameter& own : module.parameters_) {
      own.named.variable.wait_ready();
      draw(own.named.variable.value(), own.init, join_path(path, own.named.name));
    }
    for (const OwnBuffer& own : module.buffers_) draw(*own.tensor, own.init, join_path(path, own.name));
    module.is_initialized_ = true;
  });
}

void Module::fill(const Tensor& value, const Init& init, std::uint64_t seed, const std::string& name) {
  if (init.kind == Init::Kind::constant)
    return on(value.stream(), [&](auto& s) { kernels::fill(s, init.value, value.view()); });
  const DeviceContext host = Device::cpu();
  CpuStream stream;
  const Random random{.seed = seed, .purpose = RandomPurpose::initialization};
  const auto draw = init.kind == Init::Kind::normal ? kernels::draw_normal : kernels::draw_uniform;
  // In place if possible: the first touch of newly allocated pages takes longer than the draws.
  if (value.device() == host.device() && value.dtype() == DType::f32 && !init.dirac)
    return draw(stream, random, hash_of(name), init.value, value.view());
  const Tensor draws = Tensor::empty(value.shape(), DType::f64, host);
  draw(stream, random, hash_of(name), init.value, draws.view());
  if (init.dirac) set_dirac(draws);
  value.copy_from(draws.to(value.dtype()));
}

Variable Module::add_parameter(std::string name, const Shape& shape, ParameterKind kind, Init init) {
  Variable variable(Tensor::full(shape, init.first(), DType::f32, Device::cpu()), true);
  parameters_.push_back({{std::move(name), variable, kind}, init});
  return variable;
}

std::shared_ptr<Tensor> Module::add_buffer(std::string name, const Shape& shape, Init init,
                                           ParameterKind kind) {
  auto tensor = std::make_shared<Tensor>(Tensor::full(shape, init.first(), DType::f32, Device::cpu()));
  buffers_.push_back({std::move(name), tensor, kind, init});
  return tensor;
}

void Module::attach(std::string name, std::shared_ptr<Module> child) {
  const std::string path = join_path(path_, name);
  check(child != nullptr, "child '{}': found a null pointer, expected a module", path);
  for (const Child& other : children_)
    check(other.name != name, "child '{}': found another child with this name, expected a new one", path);
  const std::vector<Module*> present = modules();
  for (const Module* const added : child->modules())
    check(std::ranges::find(present, added) == present.end(),
          "child '{}': found {}, which is already in this model as '{}'; expected a module of its own", path,
          added->describe(), added->path());
  child->set_path(path);
  children_.push_back({std::move(name), std::move(child)});
}

void Module::set_path(const std::string& path) {
  path_ = path;
  for (const Child& child : children_) child.module->set_path(join_path(path, child.name));
}

}  // namespace convoy::nn
