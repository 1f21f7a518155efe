#include "convoy/engine/io/state_dict.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

/// Returns a copy, of shape `result`, of a host tensor seen as [a, b, c] with the inner two axes exchanged: OHWI to OIHW
/// or back, with the two spatial axes as one.
Tensor swapped(const Tensor& host, std::int64_t b, std::int64_t c, const Shape& result) {
  Tensor out = Tensor::empty(result, host.dtype(), host.context());
  if (out.numel() == 0) return out;
  dispatch(kAllTypes, host.dtype(), [&](auto zero) {
    const auto* const from = host.view().as<decltype(zero)>();
    auto* const to = out.view().as<decltype(zero)>();
    for (std::int64_t i = 0; i < result[0]; ++i)
      for (std::int64_t j = 0; j < b; ++j)
        for (std::int64_t k = 0; k < c; ++k) to[(i * c + k) * b + j] = from[(i * b + j) * c + k];
  });
  return out;
}

/// Returns whether the name is that of PyTorch's num_batches_tracked.
bool counts_batches(std::string_view name) {
  constexpr std::string_view kSuffix = "num_batches_tracked";
  return name.ends_with(kSuffix) &&
         (name.size() == kSuffix.size() || name[name.size() - kSuffix.size() - 1] == '.');
}

/// Appends a number of items with the first few names to `text`: "2 missing (a, b)".
void describe(std::string& text, const std::vector<std::string>& items, std::string_view what) {
  constexpr std::size_t kShown = 3;
  if (items.empty()) return;
  if (!text.empty()) text += "; ";
  text += fmt::format(
      "{} {} ({}{})", items.size(), what,
      fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, items.size())),
                ", "),
      items.size() > kShown ? ", …" : "");
}

}  // namespace

PreparedImport PreparedImport::of(const std::vector<optim::NamedState>& state,
                                  const std::vector<NamedTensor>& tensors, const std::string& source) {
  std::map<std::string_view, const Tensor*> found;
  std::vector<std::string> missing, unexpected, mismatched;
  for (const NamedTensor& named : tensors)
    if (!found.emplace(named.name, &named.tensor).second)
      unexpected.push_back(printable(named.name) + " twice");

  PreparedImport prepared;
  for (const optim::NamedState& target : state) {
    const auto entry = found.find(target.name);
    if (entry == found.end()) {
      missing.push_back(printable(target.name));
      continue;
    }
    const Tensor& tensor = *entry->second;
    found.erase(entry);
    const Shape expected = shape_in_checkpoint(target.tensor.shape(), target.kind);
    const bool same_type = tensor.dtype() == target.tensor.dtype() ||
                           (is_floating(tensor.dtype()) && is_floating(target.tensor.dtype()));
    if (tensor.shape() == expected && same_type)
      prepared.copies_.push_back({tensor, target.tensor, target.kind == nn::ParameterKind::filter});
    else
      mismatched.push_back(fmt::format("{} is {} {}, expected {} {}", printable(target.name),
                                       to_string(tensor.dtype()), tensor.shape().text(),
                                       to_string(target.tensor.dtype()), expected.text()));
  }
  for (const auto& [name, tensor] : found)
    if (!counts_batches(name)) unexpected.push_back(printable(name));

  std::string problems;
  describe(problems, missing, "missing");
  describe(problems, unexpected, "unexpected");
  describe(problems, mismatched, "of another shape or type");
  if (!problems.empty()) fail<CheckpointError>("{}: tensors do not match: {}", source, problems);
  return prepared;
}

void PreparedImport::apply() const {
  const DeviceContext cpu = Device::cpu();
  for (const Copy& copy : copies_) {
    Tensor host = copy.from.to(cpu);
    if (copy.is_filter) host = from_checkpoint(host, copy.to.shape(), nn::ParameterKind::filter);
    copy.to.copy_from(host.to(copy.to.dtype()));
  }
}

Shape shape_in_checkpoint(const Shape& shape, nn::ParameterKind kind) {
  return kind == nn::ParameterKind::filter ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
}

Tensor to_checkpoint(const Tensor& tensor, nn::ParameterKind kind) {
  const Tensor host = tensor.to(Device::cpu());
  if (kind != nn::ParameterKind::filter) return host;
  const Shape& shape = host.shape();
  return swapped(host, shape[1] * shape[2], shape[3], shape_in_checkpoint(shape, kind));
}

Tensor from_checkpoint(const Tensor& tensor, const Shape& shape, nn::ParameterKind kind) {
  return kind == nn::ParameterKind::filter ? swapped(tensor, shape[3], shape[1] * shape[2], shape) : tensor;
}

std::vector<optim::NamedState> model_state(const nn::Module& model) {
  std::vector<optim::NamedState> state;
  for (const nn::NamedParameter& parameter : model.parameters()) {
    parameter.variable.wait_ready();
    state.push_back({parameter.name, parameter.variable.value(), parameter.kind});
  }
  for (const nn::NamedBuffer& buffer : model.buffers())
    state.push_back({buffer.name, buffer.tensor, buffer.kind});
  return state;
}

std::vector<NamedTensor> state_dict(const nn::Module& model) { return state_dict(model_state(model)); }

std::vector<NamedTensor> state_dict(const std::vector<optim::NamedState>& state) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor, kind] : state) tensors.push_back({name, to_checkpoint(tensor, kind)});
  return tensors;
}

void load_state_dict(nn::Module& model, const std::vector<NamedTensor>& tensors, const std::string& source) {
  PreparedImport::of(model_state(model), tensors, source).apply();
  model.refresh_low_precision_copies();
}

std::string parameters_hash(const nn::Module& model) { return parameters_hash(state_dict(model)); }

std::string parameters_hash(const std::vector<NamedTensor>& exported) {
  std::vector<std::string_view> pieces;
  for (const NamedTensor& named : exported)
    if (named.tensor.numel() > 0)
      pieces.emplace_back(static_cast<const char*>(named.tensor.view().data), named.tensor.bytes());
  return hash_bytes(pieces);
}

namespace {

/// Copies a list of values whose member `tensor` is a Tensor, which gets new memory unless it has the same shape and
/// type.
template <class T>
void copy_list(const std::vector<T>& from, std::vector<T>& to, Tensor T::*tensor,
               const DeviceContext& context) {
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    Tensor memory = std::move(to[i].*tensor);
    const Tensor& source = from[i].*tensor;
    if (!memory.defined() || memory.shape() != source.shape() || memory.dtype() != source.dtype())
      memory = Tensor::empty(source.shape(), source.dtype(), context);
    memory.copy_from(source);
    to[i] = from[i];
    to[i].*tensor = std::move(memory);
  }
}

}  // namespace

Snapshot Snapshot::of(const nn::Module& model) {
  Snapshot snapshot;
  snapshot.model = model_state(model);
  return snapshot;
}

void Snapshot::copy_from(const Snapshot& other) {
  if (!memory_) memory_ = DeviceContext::create_cpu({.threads = 1});
  copy_list(other.model, model, &optim::NamedState::tensor, *memory_);
  copy_list(other.other_weights, other_weights, &optim::NamedState::tensor, *memory_);
  copy_list(other.optimizer.tensors, optimizer.tensors, &optim::NamedState::tensor, *memory_);
  copy_list(other.shard.pieces, shard.pieces, &optim::StatePiece::values, *memory_);
  optimizer.name = other.optimizer.name;
  optimizer.steps = other.optimizer.steps;
  optimizer.own_steps = other.optimizer.own_steps;
  shard.optimizer = other.shard.optimizer;
  shard.steps = other.shard.steps;
  shard.own_steps = other.shard.own_steps;
  shard.index = other.shard.index;
  shard.count = other.shard.count;
}

void Snapshot::restore_model(nn::Module& to) const {
  const std::vector<optim::NamedState> live = model_state(to);
  check(live.size() == model.size(), "snapshot: {} tensors, expected the {} of the model", model.size(),
        live.size());
  for (std::size_t i = 0; i < model.size(); ++i) live[i].tensor.copy_from(model[i].tensor);
  to.refresh_low_precision_copies();
}

}  // namespace convoy::io

namespace convoy {

void save(const nn::Module& network, const std::filesystem::path& file) {
  io::write_file_atomically(file, io::encode_safetensors(io::state_dict(network)));
}

void load(nn::Module& network, const std::filesystem::path& file) {
  io::load_state_dict(network, io::read_safetensors(file, Device::cpu()).tensors, file.string());
}

}  // namespace convoy
