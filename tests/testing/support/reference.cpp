#include "tests/testing/support/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "convoy/engine/io/safetensors.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

std::uint64_t fnv1a(std::string_view name) {
  std::uint64_t state = 0xCBF29CE484222325u;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return state;
}

// Returns the upper 24 bits of the SplitMix64 value `index` of the stream `key`.
std::uint64_t bits(std::uint64_t key, std::uint64_t index) {
  std::uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) >> 40;
}

// Calls f(index in PyTorch's layout, index in our layout) for every element. `shape` is in our layout.
template <class F>
void for_each_index(const Shape& shape, F&& f) {
  if (shape.rank() != 4) {
    for (std::int64_t i = 0; i < shape.numel(); ++i)
      f(static_cast<std::size_t>(i), static_cast<std::size_t>(i));
    return;
  }
  std::size_t theirs = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t c = 0; c < shape[3]; ++c)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t w = 0; w < shape[2]; ++w)
          f(theirs++, static_cast<std::size_t>(((n * shape[1] + h) * shape[2] + w) * shape[3] + c));
}

Tensor channels_last(const Tensor& stored) {
  if (stored.shape().rank() != 4) return stored;
  const Shape& theirs = stored.shape();
  const Shape ours{theirs[0], theirs[2], theirs[3], theirs[1]};
  const std::vector<double> from = stored.to_vector<double>();
  std::vector<double> values(from.size());
  for_each_index(
      ours, [&](std::size_t their_index, std::size_t our_index) { values[our_index] = from[their_index]; });
  return Tensor::from(values, ours, stored.context());
}

// Returns the values of a parameter or buffer, whose kind follows from its name and shape.
Tensor model_values(const std::string& name, const Tensor& like) {
  const Shape& shape = like.shape();
  if (name.ends_with("running_var")) return formula_values(name, shape, like.dtype(), 0.5, 1);
  if (shape.rank() == 1 && name.ends_with("weight"))
    return formula_values(name, shape, like.dtype(), 0.25, 1);
  if (shape.rank() == 1) return formula_values(name, shape, like.dtype(), 0.25);
  const auto fan_in = static_cast<double>(shape.numel() / shape[0]);
  return formula_values(name, shape, like.dtype(), std::sqrt(3 / fan_in));
}

}  // namespace

Tensor formula_values(std::string_view name, const Shape& shape, DType dtype, double scale, double offset) {
  const std::uint64_t key = fnv1a(name);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for_each_index(shape, [&](std::size_t theirs, std::size_t ours) {
    const double u = static_cast<double>(bits(key, theirs)) * 0x1p-23 - 1;
    values[ours] = static_cast<float>(offset + scale * u);
  });
  return Tensor::from(values, shape, Device::cpu()).to(dtype);
}

Tensor formula_labels(std::string_view name, std::int64_t count, int classes) {
  const std::uint64_t key = fnv1a(name);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<std::int32_t>(bits(key, i) % static_cast<std::uint64_t>(classes));
  }
  return Tensor::from(labels, {count}, Device::cpu());
}

void fill_by_formula(const nn::Module& model) {
  for (const nn::NamedParameter& parameter : model.parameters()) {
    const Tensor& value = parameter.variable.value();
    value.copy_from(model_values(parameter.name, value));
  }
  for (const nn::NamedBuffer& buffer : model.buffers())
    buffer.tensor.copy_from(model_values(buffer.name, buffer.tensor));
}

Reference::Reference(const std::string& file) {
  const auto path = testing::source_path("tests/reference/" + file);
  for (const io::NamedTensor& stored : io::read_safetensors(path, Device::cpu()).tensors) {
    tensors_[stored.name] = channels_last(stored.tensor.to(DType::f64));
  }
}

Tensor Reference::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    ADD_FAILURE() << "the reference file has no tensor " << name;
    return {};
  }
  return found->second;
}

::testing::AssertionResult near(const Tensor& actual, const Tensor& expected, double tolerance) {
  if (!actual.defined() || !expected.defined())
    return ::testing::AssertionFailure() << "found an undefined tensor";
  if (!(actual.shape() == expected.shape())) {
    return ::testing::AssertionFailure() << actual.shape().text() << ", expected " << expected.shape().text();
  }
  const std::vector<double> found = actual.to(DType::f64).to_vector<double>();
  const std::vector<double> stored = expected.to_vector<double>();
  double maximum = 0;
  for (const double value : stored) maximum = std::max(maximum, std::abs(value));
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (!(std::abs(found[i] - stored[i]) <= tolerance * maximum)) {  // NaN fails
      return ::testing::AssertionFailure()
             << "element " << i << " of " << actual.shape().text() << ": " << found[i] << ", expected "
             << stored[i] << " within " << tolerance * maximum;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace convoy::testing
