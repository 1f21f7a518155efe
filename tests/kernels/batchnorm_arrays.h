// The arguments of a batch norm, and functions that call its kernels on any device.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "convoy/kernels/batchnorm.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"

namespace convoy::testing {

/// The mode of a batch norm and the operations fused with it.
struct Fusion {
  bool training, relu, residual;
  bool gelu = false;  // instead of a ReLU

  FusedActivation activation() const {
    if (gelu) return FusedActivation::gelu;
    return relu ? FusedActivation::relu : FusedActivation::none;
  }
  std::string text() const {
    return std::string(training ? "training" : "inference") + (relu ? ", relu" : "") +
           (gelu ? ", gelu" : "") + (residual ? ", residual" : "");
  }
};

inline constexpr Fusion kFusions[] = {{true, false, false}, {true, true, false},   {true, true, true},
                                      {true, false, true},  {false, false, false}, {false, true, false},
                                      {false, true, true},  {false, false, true}};

/// A batch norm in training alone.
inline constexpr Fusion kPlainNorm{.training = true, .relu = false, .residual = false};

/// While it exists, streams of a GPU that are first used have clusters of up to `blocks` blocks.
struct ScopedClusters {
  explicit ScopedClusters(const char* blocks) { setenv("CONVOY_CLUSTERS", blocks, 1); }
  ~ScopedClusters() { unsetenv("CONVOY_CLUSTERS"); }
  ScopedClusters(const ScopedClusters&) = delete;
  ScopedClusters& operator=(const ScopedClusters&) = delete;
};

/// Which of dx, dresidual, dgamma and dbeta are wanted.
using Wanted = std::array<bool, 4>;
inline constexpr Wanted kWantAll = {true, true, true, true};

/// The offset in elements from an aligned address of each view.
struct Offsets {
  std::size_t x = 0, residual = 0, dy = 0, y = 0, dx = 0, dresidual = 0;
  std::size_t gamma = 0, beta = 0, mean = 0, inverse_std = 0, coefficients = 0, running_mean = 0,
              running_var = 0, dgamma = 0, dbeta = 0;
};

/// All arrays that a batch norm of element type T reads and writes. The gradients have random previous
/// values.
template <class T>
struct Norm {
  using C = ComputeType<T>;
  Array<T> x, residual, dy, y, dx, dresidual;
  Array<C> gamma, beta, mean, inverse_std, coefficients, running_mean, running_var, dgamma, dbeta;

  Norm(std::int64_t rows, std::int64_t channels)
      : x(Array<T>::random({rows, channels}, 1)),
        residual(Array<T>::random({rows, channels}, 2)),
        dy(Array<T>::random({rows, channels}, 3)),
        y({rows, channels}),
        dx(Array<T>::random({rows, channels}, 4)),
        dresidual(Array<T>::random({rows, channels}, 5)),
        gamma(Array<C>::random({channels}, 6)),
        beta(Array<C>::random({channels}, 7)),
        mean({channels}),
        inverse_std({channels}),
        coefficients({2, channels}),
        running_mean(Array<C>::random({channels}, 8)),
        running_var({channels}, C{2}),
        dgamma(Array<C>::random({channels}, 9)),
        dbeta(Array<C>::random({channels}, 10)) {}

  std::int64_t rows() const { return x.shape()[0]; }
  std::int64_t channels() const { return x.shape()[1]; }

  template <class U = double>
  Norm<U> widened() const {
    Norm<U> out(rows(), channels());
    const auto widen = [](auto& to, const auto& from) { to = from.template to<U>(); };
    widen(out.x, x), widen(out.residual, residual), widen(out.dy, dy), widen(out.y, y), widen(out.dx, dx);
    widen(out.dresidual, dresidual), widen(out.gamma, gamma), widen(out.beta, beta), widen(out.mean, mean);
    widen(out.inverse_std, inverse_std), widen(out.running_mean, running_mean);
    widen(out.coefficients, coefficients), widen(out.running_var, running_var), widen(out.dgamma, dgamma),
        widen(out.dbeta, dbeta);
    return out;
  }
};

/// Calls the forward kernel and stores its results in `norm`.
template <class T>
void forward(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion, const Offsets& at = {}) {
  using C = ComputeType<T>;
  const DeviceArray<T> x(device, norm.x, at.x), residual(device, norm.residual, at.residual),
      y(device, norm.y, at.y);
  const DeviceArray<C> gamma(device, norm.gamma, at.gamma), beta(device, norm.beta, at.beta),
      mean(device, norm.mean, at.mean), inverse_std(device, norm.inverse_std, at.inverse_std),
      coefficients(device, norm.coefficients, at.coefficients),
      running_mean(device, norm.running_mean, at.running_mean),
      running_var(device, norm.running_var, at.running_var);
  const ConstView added = fusion.residual ? ConstView(residual.view()) : ConstView();
  const kernels::BatchNorm layer{gamma.view(),
                                 beta.view(),
                                 running_mean.view(),
                                 running_var.view(),
                                 {.activation = fusion.activation()}};
  const kernels::SavedStatistics saved{mean.view(), inverse_std.view(), coefficients.view()};
  on(device.stream(), [&](auto& s) {
    if (!fusion.training) return kernels::batch_norm_inference(s, layer, x.view(), added, y.view());
    kernels::batch_norm_forward(s, layer, x.view(), added, saved, y.view());
  });
  norm.y = y.values();
  norm.mean = mean.values();
  norm.inverse_std = inverse_std.values();
  norm.coefficients = coefficients.values();
  norm.running_mean = running_mean.values();
  norm.running_var = running_var.values();
}

/// Calls the backward kernel with the statistics of `norm`, its y, and without a residual its coefficients.
/// Stores the results in `norm`. If reads_y, passes no coefficients.
template <class T>
void backward(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion, GradMode mode,
              const Wanted& wanted = kWantAll, const Offsets& at = {}, bool reads_y = false) {
  using C = ComputeType<T>;
  const DeviceArray<T> dy(device, norm.dy, at.dy), x(device, norm.x, at.x), y(device, norm.y, at.y),
      dx(device, norm.dx, at.dx), dresidual(device, norm.dresidual, at.dresidual);
  const DeviceArray<C> gamma(device, norm.gamma, at.gamma), mean(device, norm.mean, at.mean),
      inverse_std(device, norm.inverse_std, at.inverse_std),
      coefficients(device, norm.coefficients, at.coefficients),
      running_mean(device, norm.running_mean, at.running_mean),
      running_var(device, norm.running_var, at.running_var), dgamma(device, norm.dgamma, at.dgamma),
      dbeta(device, norm.dbeta, at.dbeta);
  const auto gradient = [&](bool is_wanted, const auto& array) {
    return is_wanted ? array.grad(mode) : GradView();
  };
  const kernels::BatchNormGradients gradients{gradient(wanted[0], dx), gradient(wanted[1], dresidual),
                                              gradient(wanted[2], dgamma), gradient(wanted[3], dbeta)};
  const kernels::BackwardArrays arrays{dy.view(), x.view(), fusion.relu ? y.view() : View()};
  const kernels::BatchNorm layer{
      gamma.view(), {}, running_mean.view(), running_var.view(), {.activation = fusion.activation()}};
  const kernels::SavedStatistics saved{mean.view(), inverse_std.view(),
                                       fusion.residual || reads_y ? View() : coefficients.view()};
  on(device.stream(), [&](auto& s) {
    if (fusion.training)
      kernels::batch_norm_backward(s, layer, arrays, saved, gradients);
    else
      kernels::batch_norm_inference_backward(s, layer, arrays, gradients);
  });
  norm.dx = dx.values();
  norm.dresidual = dresidual.values();
  norm.dgamma = dgamma.values();
  norm.dbeta = dbeta.values();
}

// Synchronized batch norm of a batch in shards, computed one after the other on one device. It does what
// engine/ops and the ranks do together.

/// The rows at which the shards end. The last one is norm.rows(). Two equal consecutive ends make an empty
/// shard.
using ShardEnds = std::vector<std::int64_t>;

namespace detail {

/// A range of rows of a matrix on a device.
template <class T>
class Rows {
 public:
  Rows(std::int64_t begin, std::int64_t end) : begin_(begin), end_(end) {}
  View of(const DeviceArray<T>& array) const {
    const View all = array.view();
    const std::int64_t channels = all.shape[1];
    T* const data = all.as<T>();
    return {data != nullptr ? data + begin_ * channels : nullptr, {end_ - begin_, channels}, all.dtype};
  }

 private:
  std::int64_t begin_, end_;
};

/// Calls f(shard, rows) for each shard.
template <class T, class F>
void for_each_shard(const ShardEnds& ends, const F& f) {
  for (std::size_t shard = 0; shard < ends.size(); ++shard)
    f(static_cast<std::int64_t>(shard), Rows<T>(shard == 0 ? 0 : ends[shard - 1], ends[shard]));
}

/// Returns the row of one shard in a matrix [shards, 1 + 2C].
inline View vector_of(const DeviceArray<double>& all, std::int64_t shard) {
  const Shape& shape = all.view().shape;
  return {all.view().as<double>() + shard * shape[1], {shape[1]}, DType::f64};
}

}  // namespace detail

/// Does the same as forward() in training, in shards. Expects equal statistics from every shard.
template <class T>
void forward_in_shards(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion,
                       const ShardEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> x(device, norm.x), residual(device, norm.residual), y(device, norm.y);
  const DeviceArray<C> gamma(device, norm.gamma), beta(device, norm.beta);
  const DeviceArray<double> moments(device,
                                    Shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()}));
  const Norm<T> before = norm;
  on(device.stream(), [&](auto& s) {
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      kernels::sync_batch_norm_moments(s, rows.of(x), detail::vector_of(moments, shard));
    });
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      const DeviceArray<C> mean(device, before.mean), inverse_std(device, before.inverse_std),
          coefficients(device, before.coefficients), running_mean(device, before.running_mean),
          running_var(device, before.running_var);
      const ConstView added = fusion.residual ? ConstView(rows.of(residual)) : ConstView();
      const kernels::BatchNorm layer{gamma.view(),
                                     beta.view(),
                                     running_mean.view(),
                                     running_var.view(),
                                     {.activation = fusion.activation()}};
      const kernels::SavedStatistics saved{mean.view(), inverse_std.view(), coefficients.view()};
      kernels::sync_batch_norm_statistics(s, layer, moments.view(), saved);
      kernels::batch_norm_normalize(s, layer, rows.of(x), added, saved, rows.of(y));
      const auto keep = [&](Array<C>& to, const DeviceArray<C>& from) {
        if (shard > 0) expect_same_bits(from.values(), to);
        to = from.values();
      };
      keep(norm.mean, mean), keep(norm.inverse_std, inverse_std), keep(norm.coefficients, coefficients);
      keep(norm.running_mean, running_mean), keep(norm.running_var, running_var);
    });
  });
  norm.y = y.values();
}

/// Does the same as backward() in training, in shards. dgamma and dbeta are summed over the shards.
template <class T>
void backward_in_shards(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion, GradMode mode,
                        const ShardEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> dy(device, norm.dy), x(device, norm.x), y(device, norm.y), dx(device, norm.dx),
      dresidual(device, norm.dresidual);
  const DeviceArray<C> gamma(device, norm.gamma), mean(device, norm.mean),
      inverse_std(device, norm.inverse_std), coefficients(device, norm.coefficients),
      dgamma(device, norm.dgamma), dbeta(device, norm.dbeta);
  const Shape shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()});
  const DeviceArray<double> sums(device, shape);
  const kernels::BatchNorm layer{gamma.view(), {}, {}, {}, {.activation = fusion.activation()}};
  const kernels::SavedStatistics saved{mean.view(), inverse_std.view(),
                                       fusion.residual ? View() : coefficients.view()};
  const auto arrays_of = [&](const auto& rows) -> kernels::BackwardArrays {
    return {rows.of(dy), rows.of(x), fusion.relu ? rows.of(y) : View()};
  };
  on(device.stream(), [&](auto& s) {
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      const GradMode shard_mode = shard == 0 ? mode : GradMode::accumulate;
      kernels::sync_batch_norm_sums(s, layer, arrays_of(rows), saved, detail::vector_of(sums, shard),
                                    {.gamma = dgamma.grad(shard_mode), .beta = dbeta.grad(shard_mode)});
    });
    const Array<double> of_shards = sums.values();
    Array<double> total(Shape({shape[1]}));
    for (std::size_t e = 0; e < of_shards.size(); ++e) total[e % total.size()] += of_shards[e];
    const DeviceArray<double> all(device, total);
    detail::for_each_shard<T>(ends, [&](std::int64_t, const auto& rows) {
      kernels::sync_batch_norm_backward(
          s, layer, arrays_of(rows), saved, all.view(),
          {.x = GradView(rows.of(dx), mode), .residual = GradView(rows.of(dresidual), mode)});
    });
  });
  norm.dx = dx.values();
  norm.dresidual = dresidual.values();
  norm.dgamma = dgamma.values();
  norm.dbeta = dbeta.values();
}

}  // namespace convoy::testing
