#include "engine/nn/module.h"

#include <cmath>
#include <numbers>

#include "engine/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

/// FNV-1a: keys a parameter's draws by its name, so that adding a layer does not change the others.
std::uint32_t hash_of(const std::string& name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Two standard normal numbers from a block of four words (Box and Muller, 1958).
std::array<double, 2> to_normals(const std::array<std::uint32_t, 4>& words) {
  const double radius = std::sqrt(-2 * std::log1p(-to_uniform53(words[0], words[1])));  // 1 - u is in (0, 1]
  const double angle = 2 * std::numbers::pi * to_uniform53(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Two numbers of U(-1, 1).
std::array<double, 2> to_uniforms(const std::array<std::uint32_t, 4>& words) {
  return {2 * to_uniform53(words[0], words[1]) - 1, 2 * to_uniform53(words[2], words[3]) - 1};
}

/// Two numbers of four words.
using Pair = std::array<double, 2> (*)(const std::array<std::uint32_t, 4>& words);

/// out[j] = scale * a draw, rounded once. The same for every number of threads.
template <class T>
void draw(const CpuStream& stream, const Random& random, std::uint32_t key, Pair pair_of, double scale,
          View out) {
  const std::int64_t count = out.numel();
  parallel_for(stream, (count + 1) / 2, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::array<double, 2> pair = pair_of(random.words(static_cast<std::uint64_t>(i), key));
      out.as<T>()[2 * i] = static_cast<T>(scale * pair[0]);
      if (2 * i + 1 < count) out.as<T>()[2 * i + 1] = static_cast<T>(scale * pair[1]);
    }
  });
}

/// What layers compute with in the type of their input; a batch norm's arrays stay what they are.
bool is_cast(ParameterKind kind) {
  return kind == ParameterKind::filter || kind == ParameterKind::weight || kind == ParameterKind::bias;
}

/// The half copy of the old value becomes one of the new.
void replace_value(const Variable& parameter, const Tensor& value) {
  const Tensor copy = parameter.half_copy();
  parameter.set_value(value);
  if (copy.defined()) parameter.set_half_copy(value.to(copy.dtype()));
}

}  // namespace

template <class F>
void Module::visit(const std::string& path, F&& f) const {
  f(*this, path);
  for (const Child& child : children_) child.module->visit(join(path, child.name), f);
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
      all.push_back({join(path, own.named.name), own.named.variable, own.named.kind});
  });
  return all;
}

std::vector<NamedBuffer> Module::buffers() const {
  std::vector<NamedBuffer> all;
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnBuffer& own : module.buffers_) all.push_back({join(path, own.name), *own.tensor});
  });
  return all;
}

Variable Epilogue::apply(const Variable& y) const {
  const Variable sum = residual.defined() ? y + residual : y;
  return relu ? convoy::relu(sum) : sum;
}

Variable Module::forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue) {
  return epilogue.apply(forward(x, pass));
}

void Module::to(const Device& device) {
  const auto moved = [&](const Tensor& tensor) {
    if (tensor.device().is(device)) return tensor;
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
  check(is_floating(dtype), "a model of {} parameters was asked for; expected floating point",
        name_of(dtype));
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_)
      replace_value(own.named.variable, own.named.variable.value().to(dtype));
    for (const OwnBuffer& own : module.buffers_) *own.tensor = own.tensor->to(dtype);
  });
}

void Module::keep_half_copies(DType dtype) {
  check(is_half(dtype), "half copies of {} were asked for; expected f16 or bf16", name_of(dtype));
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_)
      if (is_cast(own.named.kind)) own.named.variable.set_half_copy(own.named.variable.value().to(dtype));
  });
}

void Module::refresh_half_copies() {
  visit("", [&](const Module& module, const std::string&) {
    for (const OwnParameter& own : module.parameters_) {
      const Tensor& copy = own.named.variable.half_copy();
      if (!copy.defined()) continue;
      on(copy.stream(), [&](auto& s) { cast(s, own.named.variable.value().view(), copy.view()); });
    }
  });
}

void Module::initialize(std::uint64_t seed) {
  const Device host = Device::cpu();
  const CpuStream stream;
  const Random random{.seed = seed, .purpose = RandomPurpose::initialization};
  visit("", [&](const Module& module, const std::string& path) {
    for (const OwnParameter& own : module.parameters_) {
      const Tensor& value = own.named.variable.value();
      if (own.init.kind == Init::Kind::constant) {
        on(value.stream(), [&](auto& s) { fill(s, own.init.value, value.view()); });
        continue;
      }
      const Pair pair_of = own.init.kind == Init::Kind::normal ? to_normals : to_uniforms;
      const std::uint32_t key = hash_of(join(path, own.named.name));
      // In place where that can be: pages that nobody has touched yet take longer than the draws.
      if (value.device() == host && value.dtype() == DType::f32) {
        draw<float>(stream, random, key, pair_of, own.init.value, value.view());
      } else {
        const Tensor draws = Tensor::empty(value.shape(), DType::f64, host);
        draw<double>(stream, random, key, pair_of, own.init.value, draws.view());
        value.copy_from(draws.to(value.dtype()));
      }
    }
    for (const OwnBuffer& own : module.buffers_)
      own.tensor->copy_from(Tensor::full(own.tensor->shape(), own.initial, own.tensor->dtype(), host));
  });
  refresh_half_copies();
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
