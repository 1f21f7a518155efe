// kernels/batchnorm.h on the CPU: the forward and inference functions.
#include "convoy/kernels/batchnorm.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/cpu/normalization/activation.h"
#include "convoy/kernels/cpu/primitives/channel_sums.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

// Sets scratch.mean and scratch.var to the statistics of x. x must have at least one row.
template <class T>
void compute_moments(CpuStream& stream, ChannelMatrix m, ChannelScratch<compute_t<T>>& scratch, const T* x) {
  // Any row is close enough to the mean to serve as the origin; this takes the first.
  std::transform(x, x + m.channels, scratch.origin.begin(), widened<T>);
  const double* origin = scratch.origin.data();
  const std::int64_t channels = m.channels;
  sum_channels(stream, m, scratch, [=](std::int64_t row, std::int64_t c, double& sum, double& square) {
    const double difference = static_cast<double>(widened(x[row * channels + c])) - origin[c];
    sum += difference;
    square += difference * difference;
  });
  const double n = static_cast<double>(m.rows);
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    const double shift = scratch.first[c] / n;
    scratch.mean[c] = scratch.origin[c] + shift;
    scratch.var[c] =
        std::max(scratch.second[c] / n - shift * shift, 0.0);  // this operand order propagates NaN
  }
}

// Combines the moments [shards, 1 + 2C] of all shards into scratch.mean and scratch.var. Returns the total
// number of rows.
template <class C>
double combine_moments(ChannelScratch<C>& scratch, std::int64_t channels, ConstView moments) {
  double n = 0;
  std::fill(scratch.mean.begin(), scratch.mean.end(), 0.0);
  std::fill(scratch.var.begin(), scratch.var.end(), 0.0);  // holds the sum of squares until the last loop
  for (std::int64_t s = 0; s < moments.shape[0]; ++s) {
    const ShardSums<const double> shard(moments.as<double>() + s * moments.shape[1], channels);
    if (*shard.rows == 0) continue;
    const double weight = *shard.rows / (n + *shard.rows);
    for (std::size_t c = 0; c < scratch.mean.size(); ++c) {
      const double delta = shard.first[c] - scratch.mean[c];
      scratch.mean[c] += delta * weight;
      scratch.var[c] += shard.second[c] + delta * delta * n * weight;
    }
    n += *shard.rows;
  }
  if (n > 0)
    for (double& var : scratch.var) var /= n;
  return n;
}

// Sets scratch.{a, b, c} to origin, factor and offset of y = (x - origin) factor + offset. origin is the mean
// rounded to C, and offset compensates for that rounding, so that a large mean cancels exactly.
template <class C>
void set_normalization(ChannelScratch<C>& scratch, std::size_t c, double mean, double inverse_std, C gamma,
                       C beta) {
  const double factor = static_cast<double>(gamma) * inverse_std;
  scratch.a[c] = static_cast<C>(mean);
  scratch.b[c] = static_cast<C>(factor);
  scratch.c[c] =
      static_cast<C>(static_cast<double>(beta) - (mean - static_cast<double>(scratch.a[c])) * factor);
}

// Computes the running statistics of `norm` and all of `saved` from scratch.mean and scratch.var over n rows.
template <class C>
void set_statistics(ChannelScratch<C>& scratch, double n, const BatchNorm& norm,
                    const SavedStatistics& saved) {
  const double momentum = norm.options.momentum;
  const auto update = [&](View running, std::size_t c, double batch) {
    C& value = running.as<C>()[c];
    value = static_cast<C>((1 - momentum) * static_cast<double>(value) + momentum * batch);
  };
  for (std::size_t c = 0; c < scratch.mean.size(); ++c) {
    const double mean = scratch.mean[c], var = scratch.var[c];
    const double inverse_std = 1 / std::sqrt(var + norm.options.epsilon);
    saved.mean.as<C>()[c] = static_cast<C>(mean);
    saved.inverse_std.as<C>()[c] = static_cast<C>(inverse_std);
    if (n > 1) {
      update(norm.running_mean, c, mean);
      update(norm.running_var, c, var * n / (n - 1));
    }
    set_normalization(scratch, c, mean, inverse_std, norm.gamma.as<C>()[c], norm.beta.as<C>()[c]);
    saved.coefficients.as<C>()[c] = scratch.b[c];
    saved.coefficients.as<C>()[scratch.mean.size() + c] = scratch.c[c];
  }
}

// Computes y = act((x - origin) factor + offset + residual).
template <class T>
void normalize(CpuStream& stream, ChannelMatrix m, const compute_t<T>* origin, const compute_t<T>* factor,
               const compute_t<T>* offset, const T* x, const T* residual, T* y, FusedActivation activation) {
  using C = compute_t<T>;
  choose(residual != nullptr, [&](auto adds) {
    choose_activation(activation, [&](auto act) {
      parallel_for(stream, m.rows, item_grain(m.channels), [&](std::int64_t begin, std::int64_t end) {
        for_each_element(begin, end, m.channels, [=](std::int64_t e, std::int64_t c) {
          C value = (widened(x[e]) - origin[c]) * factor[c] + offset[c];
          if constexpr (adds) value += widened(residual[e]);
          // This operand order propagates NaN.
          if constexpr (act == FusedActivation::relu) value = C{0} > value ? C{0} : value;
          if constexpr (act == FusedActivation::gelu) {
            value = widened(stored<T>(value));
            value *= vector_math::normal_cdf(value);
          }
          y[e] = stored<T>(value);
        });
      });
    });
  });
}

}  // namespace

void batch_norm_statistics(CpuStream& stream, const BatchNorm& norm, ConstView x,
                           const SavedStatistics& saved) {
  const ChannelMatrix m(x.shape);
  if (m.rows == 0) {
    fill(stream, 0, saved.mean);
    fill(stream, 0, saved.inverse_std);
    return;
  }
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<ChannelScratch<compute_t<T>>>();
    scratch.resize(m.channels);
    compute_moments(stream, m, scratch, x.as<T>());
    set_statistics(scratch, static_cast<double>(m.rows), norm, saved);
  });
}

void batch_norm_normalize(CpuStream& stream, const BatchNorm& norm, ConstView x, ConstView residual,
                          const SavedStatistics& saved, View y) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const factor = saved.coefficients.as<compute_t<T>>();
    normalize(stream, m, saved.mean.as<compute_t<T>>(), factor, factor + m.channels, x.as<T>(),
              residual.as<T>(), y.as<T>(), norm.options.activation);
  });
}

void sync_batch_norm_moments(CpuStream& stream, ConstView x, View moments) {
  const ChannelMatrix m(x.shape);
  fill(stream, 0, moments);
  if (m.rows == 0) return;
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<ChannelScratch<compute_t<T>>>();
    scratch.resize(m.channels);
    compute_moments(stream, m, scratch, x.as<T>());
    ShardSums<double> shard(moments.as<double>(), m.channels);
    *shard.rows = static_cast<double>(m.rows);
    for (std::size_t c = 0; c < static_cast<std::size_t>(m.channels); ++c) {
      shard.first[c] = scratch.mean[c];
      shard.second[c] = scratch.var[c] * *shard.rows;
    }
  });
}

void sync_batch_norm_statistics(CpuStream& stream, const BatchNorm& norm, ConstView moments,
                                const SavedStatistics& saved) {
  dispatch(kCpuFullTypes, saved.mean.dtype, [&](auto zero) {
    auto& scratch = stream.local<ChannelScratch<decltype(zero)>>();
    scratch.resize(saved.mean.numel());
    const double n = combine_moments(scratch, saved.mean.numel(), moments);
    set_statistics(scratch, n, norm, saved);
  });
}

void batch_norm_inference(CpuStream& stream, const BatchNorm& norm, ConstView x, ConstView residual, View y) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    scratch.resize(m.channels);
    for (std::size_t c = 0; c < static_cast<std::size_t>(m.channels); ++c)
      set_normalization(
          scratch, c, static_cast<double>(norm.running_mean.as<C>()[c]),
          1 / std::sqrt(static_cast<double>(norm.running_var.as<C>()[c]) + norm.options.epsilon),
          norm.gamma.as<C>()[c], norm.beta.as<C>()[c]);
    normalize(stream, m, scratch.a.data(), scratch.b.data(), scratch.c.data(), x.as<T>(), residual.as<T>(),
              y.as<T>(), norm.options.activation);
  });
}

}  // namespace convoy::kernels
