#include "tests/kernels/cuda/planned/model_convolutions.h"

#include <set>

#include "convoy/engine/nn/layers.h"
#include "convoy/models/models.h"

namespace convoy::testing {
namespace {

/// Adds the convolutions of a model for square images. Runs it on the meta device, which computes nothing.
void add_convolutions(const std::string& model_name, std::int64_t side, std::set<ModelConvolution>& found) {
  const models::Model model = models::make(model_name, {.input = {side, side, 3}});
  std::vector<nn::HookHandle> hooks;
  for (nn::Module* const module : model.root().modules()) {
    auto* const layer = dynamic_cast<nn::Conv2d*>(module);
    if (layer == nullptr) continue;
    hooks.push_back(layer->add_forward_hook(
        [&found, layer](const nn::Module&, std::span<const Variable> x, std::span<Variable> y) {
          const nn::Conv2dLayerOptions& options = layer->options();
          const Shape filter = layer->parameters().front().variable.shape();
          found.insert({kernels::ConvSizes(x.front().shape(), filter, y.front().shape(),
                                           {.stride = options.stride, .padding = options.padding}),
                        options.bias});
        }));
  }
  model.root().infer(Shape{kPlannedBatch, side, side, 3});
}

}  // namespace

std::vector<ModelConvolution> model_convolutions() {
  std::set<ModelConvolution> found;
  for (const std::string& name : models::names()) {
    add_convolutions(name, 32, found);
    if (models::find(name).has_stems) add_convolutions(name, 224, found);
  }
  return {found.begin(), found.end()};
}

std::vector<kernels::Conv2dProblem> problems_of(const ModelConvolution& convolution, DType dtype) {
  using kernels::Conv2dDirection;
  const kernels::Conv2dProblem forward{.direction = Conv2dDirection::forward,
                                       .dtype = dtype,
                                       .sizes = convolution.sizes,
                                       .alignment = kernels::kCudnnAlignment};
  std::vector<kernels::Conv2dProblem> problems{forward};
  if (convolution.has_bias) {
    problems.push_back(forward);
    problems.back().bias = true;
    problems.push_back(problems.back());
    problems.back().relu = true;
  }
  for (const Conv2dDirection direction : {Conv2dDirection::backward_data, Conv2dDirection::backward_filter})
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      problems.push_back(forward);
      problems.back().direction = direction;
      problems.back().mode = mode;
    }
  return problems;
}

}  // namespace convoy::testing
