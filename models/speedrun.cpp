// The networks of the CIFAR-10 speed records (K. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU",
// arXiv:2404.00498, and the scripts airbench94_muon and airbench96_faster of its repository). The parameters
// and buffers have the names of airbench94_muon: whiten, layers.1.conv1 …, head.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/parallel.h"
#include "convoy/models/models.h"
#include "convoy/models/whitening.h"

namespace convoy::models {
namespace {

using Layers = std::vector<nn::Layer>;

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

nn::Conv2d conv(int in, int out) { return {in, out, {.padding = 1, .bias = false, .dirac = true}}; }

nn::BatchNorm2d norm(int channels, double momentum) {
  return nn::BatchNorm2d(channels, {.epsilon = 1e-12, .momentum = momentum}, /*train_scale=*/false);
}

// Returns a layer of the activation with its name, such as "gelu1".
nn::Layer activation(nn::ActivationKind kind, int number) {
  return {fmt::format("{}{}", kind == nn::ActivationKind::silu ? "silu" : "gelu", number),
          nn::Activation(kind)};
}

// A convolution, pooling, batch norm and activation, followed by a second convolution, batch norm and activation.
// With a shortcut, by two of them, and the input of these is added before the last activation.
class ConvGroup final : public nn::Module {
 public:
  ConvGroup(int in, int width, const SpeedrunPlan& plan, nn::ActivationKind kind) : in_(in), width_(width) {
    const Layers first = {{"conv1", conv(in, width)},
                          {"pool", nn::MaxPool2d(2)},
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
  Layers layers = {nn::Activation(kind)};
  int in = 8 * channels;
  for (int i = 0; i < kGroups; ++i) {
    const int width = plan.widths[static_cast<std::size_t>(i)];
    layers.emplace_back(ConvGroup(in, width, plan, kind));
    in = width;
  }
  layers.emplace_back(nn::MaxPool2d(kLastPool));
  const std::int64_t features =
      in * (last_side(input[0]) / kLastPool) * (last_side(input[1]) / kLastPool);  // 1x1 pixels of 32x32
  const auto count = static_cast<double>(features);
  // U(-sqrt(3), sqrt(3)) has the standard deviation 1.
  const double bound = std::sqrt(plan.has_shortcuts ? 1 / count : 3);
  const double scale = 1 / (plan.has_shortcuts ? 9 : count);
  nn::Sequential net({{"whiten", WhiteningConv2d(channels, /*zero_bias=*/plan.has_shortcuts)},
                      {"layers", nn::Sequential(layers)},
                      {"flatten", nn::Flatten()},
                      {"head", Head(features, options.classes, bound, scale)}});
  return {plan.name, std::move(net), input, options.seed, options.device};
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

namespace {

constexpr int kSide = 2;           // of a patch
constexpr double kEpsilon = 5e-4;  // bounds the factor of patches that hardly vary
constexpr int kMaxSweeps = 60;     // convergence is quadratic, so about ten suffice

/// Adds p p^T of all patches of an image [H, W, C] to `sums` [4C, 4C].
void add_moments(const float* image, std::int64_t height, std::int64_t width, std::int64_t channels,
                 double* sums) {
  const std::int64_t run = kSide * channels, size = kSide * run;  // adjacent elements, and all, of a patch
  std::vector<double> patch(static_cast<std::size_t>(size));
  for (std::int64_t y = 0; y + kSide <= height; ++y) {
    for (std::int64_t x = 0; x + kSide <= width; ++x) {
      for (std::int64_t row = 0; row < kSide; ++row) {
        const float* const from = image + ((y + row) * width + x) * channels;
        std::copy(from, from + run, patch.data() + row * run);
      }
      for (std::int64_t i = 0; i < size; ++i) {
        const double p = patch[static_cast<std::size_t>(i)];
        for (std::int64_t j = 0; j < size; ++j) sums[i * size + j] += p * patch[static_cast<std::size_t>(j)];
      }
    }
  }
}

/// Makes element (p, q) of the symmetric matrix `a` zero by a rotation in the plane of p and q. Applies the
/// rotation to the rows of `vectors`.
void rotate(std::vector<double>& a, std::vector<double>& vectors, std::size_t n, std::size_t p,
            std::size_t q) {
  if (a[p * n + q] == 0) return;
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const double tangent = std::copysign(1, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
  const double cosine = 1 / std::hypot(tangent, 1.0), sine = tangent * cosine;
  const auto turn = [&](double& first, double& second) {
    const double old = first;
    first = cosine * old - sine * second;
    second = sine * old + cosine * second;
  };
  for (std::size_t k = 0; k < n; ++k) turn(a[k * n + p], a[k * n + q]);
  for (std::size_t k = 0; k < n; ++k) turn(a[p * n + k], a[q * n + k]);
  for (std::size_t k = 0; k < n; ++k) turn(vectors[p * n + k], vectors[q * n + k]);
}

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> matrix, std::size_t n) {
  std::vector<double> vectors(n * n);
  for (std::size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double off_diagonal = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const double square = matrix[i * n + j] * matrix[i * n + j];
        all += square;
        if (i != j) off_diagonal += square;
      }
    if (off_diagonal <= 0x1p-106 * all) break;  // the rounding errors of the matrix itself
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) rotate(matrix, vectors, n, p, q);
  }

  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return matrix[i * n + i] > matrix[j * n + j]; });
  SymmetricEigen result;
  for (const std::size_t i : order) {
    result.values.push_back(matrix[i * n + i]);
    const auto begin = vectors.begin() + static_cast<std::ptrdiff_t>(i * n);
    const auto end = begin + static_cast<std::ptrdiff_t>(n);
    const double largest =
        *std::max_element(begin, end, [](double a, double b) { return std::abs(a) < std::abs(b); });
    std::transform(begin, end, std::back_inserter(result.vectors),
                   [&](double component) { return std::copysign(1, largest) * component; });
  }
  return result;
}

std::vector<double> patch_moments(const Tensor& images) {
  check(images.shape().rank() == 4, "whitening: found images of shape {}, expected [N, H, W, C]",
        images.shape().text());
  const std::int64_t count = images.size(0), height = images.size(1), width = images.size(2),
                     channels = images.size(3);
  check(count > 0 && channels > 0 && height >= kSide && width >= kSide,
        "whitening: found images of shape {}, expected at least one image of {}x{} pixels",
        images.shape().text(), kSide, kSide);
  const Tensor host = images.to(DType::f32).to(Device::cpu());
  const auto* const pixels = static_cast<const float*>(host.view().data);
  const std::int64_t size = kSide * kSide * channels, elements = size * size;
  // One sum per image, added in the order of the images, so that threads do not change the result.
  std::vector<double> sums(static_cast<std::size_t>(count * elements));
  parallel_for(CpuStream(), count, /*grain=*/16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      add_moments(pixels + i * height * width * channels, height, width, channels,
                  sums.data() + i * elements);
  });
  std::vector<double> moments(static_cast<std::size_t>(elements));
  const auto patches = static_cast<double>(count * (height - kSide + 1) * (width - kSide + 1));
  for (std::size_t i = 0; i < sums.size(); ++i) moments[i % moments.size()] += sums[i] / patches;
  for (const double moment : moments)
    check(std::isfinite(moment), "whitening: found images with values that are not finite");
  return moments;
}

WhiteningConv2d::WhiteningConv2d(int channels, bool zero_bias) : channels_(channels) {
  check(channels > 0, "WhiteningConv2d {}: expected a positive number of channels", channels);
  const std::int64_t size = kSide * kSide * channels;
  const double bound = 1 / std::sqrt(static_cast<double>(size));
  weight_ = add_buffer("weight", {2 * size, kSide, kSide, channels}, Init::uniform(bound),
                       nn::ParameterKind::filter);
  bias_ = add_parameter("bias", {2 * size}, nn::ParameterKind::bias,
                        zero_bias ? Init::constant(0) : Init::uniform(bound));
}

void WhiteningConv2d::whiten(const Tensor& images) {
  check(images.shape().rank() == 4 && images.size(3) == channels_,
        "whitening: found images of shape {}, expected [N, H, W, {}]", images.shape().text(), channels_);
  const std::size_t size = static_cast<std::size_t>(weight_->size(0)) / 2;
  const SymmetricEigen eigen = symmetric_eigen(patch_moments(images), size);
  std::vector<double> filters(2 * size * size);
  for (std::size_t i = 0; i < size * size; ++i) {
    filters[i] = eigen.vectors[i] / std::sqrt(std::max(eigen.values[i / size], 0.0) + kEpsilon);
    filters[size * size + i] = -filters[i];
  }
  weight_->copy_from(Tensor::from(filters, weight_->shape(), Device::cpu()).to(weight_->dtype()));
}

Variable WhiteningConv2d::forward(const Variable& x, const nn::ForwardContext&) {
  return conv2d(x, nn::for_input(Variable(*weight_), x), nn::for_input(bias_, x));
}

std::string WhiteningConv2d::describe() const {
  return fmt::format("WhiteningConv2d {} -> {}, {}x{}", channels_, weight_->size(0), kSide, kSide);
}

}  // namespace convoy::models
