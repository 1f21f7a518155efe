#include "convoy/models/model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::models {
namespace {

// Returns the shape of a batch of n images.
Shape batched(const Shape& image, std::int64_t n) { return {n, image[0], image[1], image[2]}; }

// Returns a number with thousands separators: "1,234,567".
std::string grouped(std::int64_t count) {
  return count < 1000 ? std::to_string(count) : fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

std::string megaflops(std::int64_t flops) { return fmt::format("{:.2f}", static_cast<double>(flops) * 1e-6); }

// Returns the output shape of one image, without the batch axis.
std::string output_text(const Shape& output) { return Shape(output.sizes().subspan(1)).text(); }

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

Model::Model(std::string name, std::shared_ptr<nn::Module> root, Shape input, int classes, std::uint64_t seed,
             const DeviceContext& device)
    : name_(std::move(name)), root_(std::move(root)), input_(input), classes_(classes) {
  check(input.rank() == 3 && input.numel() > 0,
        "{}: found an input of shape {}, expected [H, W, C] without zeros", name_, input.text());
  const Shape output = root_->infer(batched(input_, 1)).shape();
  check(output == Shape{1, classes_}, "{}: the output of the network for one image is {}, expected [1, {}]",
        name_, output.text(), classes_);
  root_->initialize(seed);
  root_->to(device);
}

Variable Model::operator()(const Variable& images, const nn::ForwardContext& context) const {
  const Shape& shape = images.shape();
  check(shape.rank() == 4 && shape == batched(input_, shape[0]),
        "{}: found images of shape {}, expected [N, {}, {}, {}], for which the model was built", name_,
        shape.text(), input_[0], input_[1], input_[2]);
  return (*root_)(images, context);
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

std::int64_t Model::flops() const { return recorded_cost(root_->infer(batched(input_, 1))).forward.flops; }

std::string Model::summary() const {
  std::vector<nn::LayerSummary> layers;
  root_->infer(batched(input_, 1), &layers);
  std::vector<Row> rows{{"layer", "type", "output", "parameters", "MFLOPs"},
                        {"input", "", input_.text(), "", ""}};
  for (const nn::LayerSummary& layer : layers) {
    rows.push_back({layer.name, layer.type, output_text(layer.output),
                    layer.parameters > 0 ? grouped(layer.parameters) : "",
                    layer.flops > 0 ? megaflops(layer.flops) : ""});
  }
  rows.push_back({"total", name_, "", grouped(parameter_count()), megaflops(flops())});
  return table(rows);
}

}  // namespace convoy::models
