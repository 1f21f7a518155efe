#include "convoy/models/grad_cam.h"

#include <algorithm>
#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::models {
namespace {

/// Leaves the parameters of a network out of the graph, until the end of the scope.
class FrozenParameters {
 public:
  explicit FrozenParameters(const Model& model) {
    for (const nn::NamedParameter& parameter : model.parameters())
      if (parameter.variable.requires_grad()) frozen_.push_back(parameter.variable);
    for (const Variable& parameter : frozen_) parameter.set_requires_grad(false);
  }
  ~FrozenParameters() {
    for (const Variable& parameter : frozen_) parameter.set_requires_grad(true);
  }
  FrozenParameters(const FrozenParameters&) = delete;
  FrozenParameters& operator=(const FrozenParameters&) = delete;

 private:
  std::vector<Variable> frozen_;
};

/// Returns the last convolution of a forward pass whose output has more than one pixel; null if there is none.
nn::Module* last_convolution(const Model& model) {
  nn::Module* last = nullptr;
  std::vector<nn::HookHandle> hooks;
  for (nn::Module* const module : model.root().modules())
    if (dynamic_cast<const nn::Conv2d*>(module) != nullptr)
      hooks.push_back(
          module->add_forward_hook([&last, module](const nn::Module&, auto, std::span<Variable> outputs) {
            const Shape& shape = outputs.front().shape();
            if (shape[1] * shape[2] > 1) last = module;
          }));
  const Shape& image = model.input();
  model.root().infer({{Shape{1, image[0], image[1], image[2]}, model.inputs().front().dtype}});
  return last;
}

/// Returns the classes to explain, which are checked.
std::vector<int> checked_labels(std::span<const int> labels, const Tensor& logits) {
  const std::int64_t count = logits.size(0), classes = logits.size(1);
  std::vector<int> result(labels.begin(), labels.end());
  if (labels.empty()) result = argmax(Variable(logits), 1).to_vector<std::int32_t>();
  check(std::ssize(result) == count, "grad_cam: found {} labels, expected one for each of {} images",
        result.size(), count);
  for (const int label : result)
    check(label >= 0 && label < classes, "grad_cam: found label {}, expected 0 to {}", label, classes - 1);
  return result;
}

}  // namespace

GradCam grad_cam(const Model& model, const Tensor& images, std::span<const int> labels) {
  check(model.inputs().size() == 1 && model.input().rank() == 3 && model.outputs().size() == 1 &&
            model.outputs().front().rank() == 1,
        "grad_cam: {} is no image classifier, expected one input [H, W, C] and one output [classes]",
        model.name());
  nn::Module* const layer = last_convolution(model);
  check(layer != nullptr, "grad_cam: {} has no Conv2d with an output of more than one pixel", model.name());

  const FrozenParameters frozen(model);
  const RecordingScope recording;
  Variable features;  // a leaf, so that the gradient ends here
  Variable logits;
  {
    const nn::HookHandle hook =
        layer->add_forward_hook([&](const nn::Module&, auto, std::span<Variable> outputs) {
          outputs.front() = features = Variable(outputs.front().value(), true);
        });
    logits = model(images);
  }
  GradCam result{.layer = layer->path(),
                 .labels = checked_labels(labels, logits.value()),
                 .logits = logits.value(),
                 .maps = {}};
  check(logits.creator() != nullptr, "grad_cam: {}: the logits do not depend on {} by recorded operations",
        model.name(), result.layer);
  const std::int64_t count = logits.shape()[0], classes = logits.shape()[1];
  std::vector<double> chosen(static_cast<std::size_t>(count * classes), 0);
  for (std::int64_t n = 0; n < count; ++n)
    chosen[static_cast<std::size_t>(n * classes + result.labels[static_cast<std::size_t>(n)])] = 1;
  // Each image's logits depend on that image alone, so one pass computes all gradients.
  backward(
      logits,
      {.seed = Tensor::from(chosen, logits.shape(), Device::cpu()).to(logits.dtype()).to(logits.context())});

  const std::vector<double> values = features.value().to(DType::f64).to_vector<double>();
  const std::vector<double> gradients = features.grad().to(DType::f64).to_vector<double>();
  const Shape& shape = features.shape();  // [N, h, w, c]
  const std::int64_t pixels = shape[1] * shape[2], channels = shape[3];
  std::vector<float> maps;
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t begin = n * pixels * channels;
    std::vector<double> weights(static_cast<std::size_t>(channels), 0);
    for (std::int64_t i = 0; i < pixels * channels; ++i)
      weights[static_cast<std::size_t>(i % channels)] +=
          gradients[static_cast<std::size_t>(begin + i)] / static_cast<double>(pixels);
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      double sum = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        sum += weights[static_cast<std::size_t>(c)] *
               values[static_cast<std::size_t>(begin + pixel * channels + c)];
      maps.push_back(static_cast<float>(std::max(sum, 0.0)));
    }
  }
  result.maps = Tensor::from(maps, {count, shape[1], shape[2]}, Device::cpu());
  return result;
}

Tensor enlarge_maps(const Tensor& maps, std::int64_t height, std::int64_t width) {
  check(maps.shape().rank() == 3 && maps.numel() > 0 && maps.dtype() == DType::f32 && height > 0 && width > 0,
        "enlarge_maps: found {} {} and {} x {} pixels, expected f32 [N, h, w] and at least 1 x 1",
        to_string(maps.dtype()), maps.shape().text(), height, width);
  // The two pixels of an axis whose mean, weighted with 1 - weight and weight, is pixel `to`.
  struct Taps {
    std::int64_t first, second;
    double weight;
  };
  const auto taps = [](std::int64_t to, std::int64_t from_size, std::int64_t to_size) {
    const double center =
        (static_cast<double>(to) + 0.5) * static_cast<double>(from_size) / static_cast<double>(to_size) - 0.5;
    const double position = std::clamp(center, 0.0, static_cast<double>(from_size - 1));
    const auto first = static_cast<std::int64_t>(position);
    return Taps{first, std::min(first + 1, from_size - 1), position - static_cast<double>(first)};
  };
  const std::int64_t rows = maps.size(1), columns = maps.size(2);
  const std::vector<float> values = maps.to_vector<float>();
  std::vector<float> result;
  for (std::int64_t n = 0; n < maps.size(0); ++n) {
    const auto at = [&](std::int64_t y, std::int64_t x) {
      return static_cast<double>(values[static_cast<std::size_t>((n * rows + y) * columns + x)]);
    };
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) {
        const Taps v = taps(y, rows, height), h = taps(x, columns, width);
        result.push_back(static_cast<float>(
            std::lerp(std::lerp(at(v.first, h.first), at(v.first, h.second), h.weight),
                      std::lerp(at(v.second, h.first), at(v.second, h.second), h.weight), v.weight)));
      }
  }
  return Tensor::from(result, {maps.size(0), height, width}, Device::cpu());
}

}  // namespace convoy::models
