// The networks of the CIFAR-10 speed records (K. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU",
// arXiv:2404.00498, and the scripts airbench94_muon and airbench96_faster of its repository). The parameters
// and buffers have the names of airbench94_muon: whiten, layers.1.conv1 …, head.
#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"
#include "convoy/models/whitening.h"

namespace convoy::models {
namespace {

using Layers = std::vector<nn::NamedModule>;

constexpr int kGroups = 3;
constexpr int kLastPool = 3;  // side of the window after the last group

// The structure of one of the networks.
struct SpeedrunPlan {
  std::string name;
  std::array<int, kGroups> widths;  // channels of each group
  // Whether a group has three convolutions with a shortcut instead of two without. True also selects the
  // other choices of the script for 96 %: a first bias of zeros, and the initial values and the divisor of
  // the head.
  bool has_shortcuts = false;
  double momentum = 0.4;  // of running statistics: they keep 1 - momentum
};

std::shared_ptr<nn::Module> conv(int in, int out) {
  return std::make_shared<nn::Conv2d>(
      in, out, nn::Conv2dLayerOptions{.kernel = 3, .padding = 1, .bias = false, .dirac = true});
}

std::shared_ptr<nn::Module> norm(int channels, double momentum) {
  return std::make_shared<nn::BatchNorm2d>(channels, BatchNormOptions{.epsilon = 1e-12, .momentum = momentum},
                                           /*train_scale=*/false);
}

// Returns a layer of the activation with its name, such as "gelu1".
nn::NamedModule activation(nn::ActivationKind kind, int number) {
  return {fmt::format("{}{}", kind == nn::ActivationKind::silu ? "silu" : "gelu", number),
          std::make_shared<nn::Activation>(kind)};
}

std::shared_ptr<nn::Module> pool(int side) {
  return std::make_shared<nn::MaxPool2d>(Pool2dOptions{.kernel = side, .stride = side});
}

// A convolution, pooling, batch norm and activation, followed by a second convolution, batch norm and activation.
// With a shortcut, by two of them, and the input of these is added before the last activation.
class ConvGroup final : public nn::Module {
 public:
  ConvGroup(int in, int width, const SpeedrunPlan& plan, nn::ActivationKind kind) : in_(in), width_(width) {
    const Layers first = {{"conv1", conv(in, width)},
                          {"pool", pool(2)},
                          {"norm1", norm(width, plan.momentum)},
                          activation(kind, 1)};
    Layers rest = {{"conv2", conv(width, width)}, {"norm2", norm(width, plan.momentum)}, activation(kind, 2)};
    if (plan.has_shortcuts)
      rest.insert(rest.end(), {{"conv3", conv(width, width)}, {"norm3", norm(width, plan.momentum)}});
    for (const auto& [name, layer] : first) add_child(name, layer);
    for (const auto& [name, layer] : rest) add_child(name, layer);
    if (plan.has_shortcuts) {
      const auto& [name, layer] = activation(kind, 3);
      last_ = add_child(name, layer);
    }
    first_ = nn::LayerChain(first);
    rest_ = nn::LayerChain(rest);
  }
  std::string describe() const override { return fmt::format("ConvGroup {} -> {}", in_, width_); }

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    const Variable y = first_(x, context);
    if (!last_) return rest_(y, context);
    return (*last_)(rest_(y, context, {.residual = y}), context);
  }
  int in_, width_;
  std::shared_ptr<nn::Module> last_;  // null without a shortcut
  nn::LayerChain first_, rest_;
};

// A fully connected layer without bias whose results are multiplied by a constant.
class Head final : public nn::Module {
 public:
  // Draws the weights from U(-bound, bound).
  Head(std::int64_t in, int classes, double bound, double scale) : in_(in), classes_(classes), scale_(scale) {
    check(classes > 0, "head: found {} classes, expected a positive number", classes);
    weight_ = add_parameter("weight", {classes, in}, nn::ParameterKind::weight, Init::uniform(bound));
  }
  std::string describe() const override {
    return fmt::format("Linear {} -> {}, divided by {:.0f}", in_, classes_, 1 / scale_);
  }

 private:
  Variable forward(const Variable& x, const nn::ForwardContext&) override {
    return linear(x, nn::for_input(weight_, x), {}) * scale_;
  }
  std::int64_t in_;
  int classes_;
  double scale_;
  Variable weight_;
};

// Returns the side that the last pooling of an image of this side sees: 3 for 32.
std::int64_t last_side(std::int64_t side) { return (side - 1) >> kGroups; }

Model speedrun_net(const SpeedrunPlan& plan, const Options& options) {
  const Shape& input = options.input;
  check(options.stem == Stem::automatic,
        "{}: found a stem, but this model has none; leave the stem at automatic", plan.name);
  check(input.rank() == 3 && std::min(last_side(input[0]), last_side(input[1])) >= kLastPool,
        "{}: found an input of shape {}, expected [H, W, C] of at least {}x{} pixels", plan.name,
        input.text(), (kLastPool << kGroups) + 1, (kLastPool << kGroups) + 1);
  const nn::ActivationKind kind = options.activation.value_or(nn::ActivationKind::gelu);
  check(kind == nn::ActivationKind::gelu || kind == nn::ActivationKind::silu,
        "{}: found the activation {}, expected GELU or SiLU", plan.name, nn::Activation(kind).describe());
  const int channels = static_cast<int>(input[2]);
  Layers layers = {{"0", std::make_shared<nn::Activation>(kind)}};
  int in = 8 * channels;
  for (int i = 0; i < kGroups; ++i) {
    const int width = plan.widths[static_cast<std::size_t>(i)];
    layers.emplace_back(std::to_string(i + 1), std::make_shared<ConvGroup>(in, width, plan, kind));
    in = width;
  }
  layers.emplace_back(std::to_string(kGroups + 1), pool(kLastPool));
  const std::int64_t features =
      in * (last_side(input[0]) / kLastPool) * (last_side(input[1]) / kLastPool);  // 1x1 pixels of 32x32
  const auto count = static_cast<double>(features);
  // U(-sqrt(3), sqrt(3)) has the standard deviation 1.
  const double bound = std::sqrt(plan.has_shortcuts ? 1 / count : 3);
  const double scale = 1 / (plan.has_shortcuts ? 9 : count);
  const auto net = std::make_shared<nn::Sequential>(
      Layers{{"whiten", std::make_shared<WhiteningConv2d>(channels, /*zero_bias=*/plan.has_shortcuts)},
             {"layers", std::make_shared<nn::Sequential>(layers)},
             {"flatten", std::make_shared<nn::Flatten>()},
             {"head", std::make_shared<Head>(features, options.classes, bound, scale)}});
  return {plan.name, net, input, options.seed, options.device};
}

}  // namespace

Model speedrun(const Options& options) {
  return speedrun_net({.name = "speedrun", .widths = {64, 256, 256}}, options);
}

Model speedrun_small(const Options& options) {
  return speedrun_net({.name = "speedrun-small", .widths = {32, 64, 64}}, options);
}

Model speedrun_96(const Options& options) {
  return speedrun_net(
      {.name = "speedrun-96", .widths = {128, 384, 512}, .has_shortcuts = true, .momentum = 0.1}, options);
}

void whiten(const Model& model, const Tensor& images) {
  bool found = false;
  for (nn::Module* const module : model.root().modules())
    if (auto* const layer = dynamic_cast<WhiteningConv2d*>(module)) {
      layer->whiten(images);
      found = true;
    }
  check(found, "{}: found no WhiteningConv2d, expected a model that has one", model.name());
}

}  // namespace convoy::models
