#include "convoy/models/whitening.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::models {
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
