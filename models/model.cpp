#include "convoy/models/model.h"

#include <algorithm>
#include <array>

#include "convoy/kernels/base/check.h"

namespace convoy::models {
namespace {

// Returns the shape of a batch of n samples.
Shape batched(const Shape& sample, std::int64_t n) {
  std::vector<std::int64_t> sizes = {n};
  sizes.insert(sizes.end(), sample.sizes().begin(), sample.sizes().end());
  return Shape(sizes);
}

// Returns a number with thousands separators: "1,234,567".
std::string grouped(std::int64_t count) {
  return count < 1000 ? std::to_string(count) : fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

std::string megaflops(std::int64_t flops) { return fmt::format("{:.2f}", static_cast<double>(flops) * 1e-6); }

// Returns the shape of one sample, without the batch axis.
Shape of_sample(const Shape& batch) { return Shape(batch.sizes().subspan(1)); }

using Row = std::array<std::string, 5>;  // layer, type, output, parameters, MFLOPs

std::string table(const std::vector<Row>& rows) {
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}", row[0], widths[0], row[1], widths[1],
                        row[2], widths[2], row[3], widths[3], row[4], widths[4]);
    text.resize(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace

Model::Model(std::string name, nn::Layer root, std::vector<nn::InputType> inputs, std::uint64_t seed,
             const DeviceContext& device)
    : name_(std::move(name)), root_(std::move(root.module)), inputs_(std::move(inputs)) {
  check(!inputs_.empty(), "{}: found no input, expected at least one", name_);
  for (const nn::InputType& input : inputs_)
    check(input.shape.numel() > 0, "{}: found an input of shape {}, expected sizes without zeros", name_,
          input.shape.text());
  for (const Variable& output : infer()) {
    check(output.shape().rank() > 0 && output.shape()[0] == 1,
          "{}: the network returns shape {} for one sample, expected [1, …]: the first axis is the batch",
          name_, output.shape().text());
    outputs_.push_back(of_sample(output.shape()));
  }
  root_->initialize(seed);
  root_->to(device);
}

void Model::check_input(std::size_t index, const Variable& x) const {
  const Shape& expected = inputs_[index].shape;
  const Shape& found = x.shape();
  if (found.rank() > 0 && found == batched(expected, found[0])) return;
  std::string axes;
  for (const std::int64_t size : expected.sizes()) axes += fmt::format(", {}", size);
  fail<UsageError>("{}: found {} of shape {}, expected [N{}], for which the model was built", name_,
                   inputs_.size() == 1 ? "an input" : fmt::format("input {}", index + 1), found.text(), axes);
}

nn::Variables Model::infer(std::vector<nn::LayerSummary>* rows) const {
  std::vector<nn::InputType> batch = inputs_;
  for (nn::InputType& input : batch) input.shape = batched(input.shape, 1);
  return root_->infer(batch, rows);
}

Variable Model::operator()(const Variable& x, const nn::ForwardContext& context) const {
  check(inputs_.size() == 1, "{}: found 1 input, expected {}", name_, inputs_.size());
  check_input(0, x);
  return (*root_)(x, context);
}

nn::Variables Model::operator()(const nn::Variables& inputs, const nn::ForwardContext& context) const {
  check(inputs.size() == inputs_.size(), "{}: found {} inputs, expected {}", name_, inputs.size(),
        inputs_.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i]);
  return (*root_)(inputs, context);
}

Model& Model::to(const DeviceContext& device) {
  root_->to(device);
  return *this;
}

Model& Model::to(DType dtype) {
  root_->to(dtype);
  return *this;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const nn::NamedParameter& parameter : parameters()) count += parameter.variable.value().numel();
  return count;
}

std::int64_t Model::flops() const { return recorded_cost(infer()).forward.flops; }

std::string Model::summary() const {
  std::vector<nn::LayerSummary> layers;
  infer(&layers);
  std::vector<Row> rows{{"layer", "type", "output", "parameters", "MFLOPs"}};
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    rows.push_back({inputs_.size() == 1 ? "input" : fmt::format("input {}", i + 1), "",
                    inputs_[i].shape.text(), "", ""});
  for (const nn::LayerSummary& layer : layers) {
    std::string outputs;
    for (const Shape& output : layer.outputs)
      outputs += (outputs.empty() ? "" : ", ") + of_sample(output).text();
    rows.push_back({layer.name, layer.type, outputs, layer.parameters > 0 ? grouped(layer.parameters) : "",
                    layer.flops > 0 ? megaflops(layer.flops) : ""});
  }
  rows.push_back({"total", name_, "", grouped(parameter_count()), megaflops(flops())});
  return table(rows);
}

}  // namespace convoy::models
