// kernels/batchnorm.h on the CPU: the forward and inference functions.
#include "convoy/kernels/batchnorm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "convoy/kernels/cpu/primitives/channel_sums.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

/// Calls f(std::integral_constant<FusedActivation, activation>).
template <class F>
void choose_activation(FusedActivation activation, const F& f) {
  switch (activation) {
    case FusedActivation::none: return f(std::integral_constant<FusedActivation, FusedActivation::none>());
    case FusedActivation::relu: return f(std::integral_constant<FusedActivation, FusedActivation::relu>());
    case FusedActivation::gelu: return f(std::integral_constant<FusedActivation, FusedActivation::gelu>());
  }
}

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
  const auto* const number = norm.batch.as<double>();
  const double momentum = std::max(norm.options.momentum, number == nullptr ? 0 : 1 / *number);
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
  const auto run = [&](auto adds) {
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
  };
  residual != nullptr ? run(std::true_type{}) : run(std::false_type{});
}

}  // namespace

void batch_norm_forward(CpuStream& stream, const BatchNorm& norm, ConstView x, ConstView residual,
                        const SavedStatistics& saved, View y) {
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
  batch_norm_normalize(stream, norm, x, residual, saved, y);
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

// kernels/batchnorm.h on the CPU: the backward functions.

namespace {

// g, the gradient of the activation's input, and the arrays from which it is computed.
template <class T, FusedActivation kActivation>
struct Upstream {
  using C = compute_t<T>;
  const T *dy, *x;
  const T* y;                       // for a ReLU
  const C *mean, *factor, *offset;  // for a GELU

  // Returns g of element e, which belongs to channel c.
  C operator()(std::int64_t e, [[maybe_unused]] std::int64_t c) const {
    const C upstream = widened(dy[e]);
    if constexpr (kActivation == FusedActivation::relu) {
      // Selects with a bit mask: a branch on the sign of y would keep the compiler from vectorizing sums and
      // would often be mispredicted.
      using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
      const Bits all_where_kept = Bits{0} - static_cast<Bits>(!(widened(y[e]) <= 0));  // also where y is NaN
      return std::bit_cast<C>(std::bit_cast<Bits>(upstream) & all_where_kept);
    } else if constexpr (kActivation == FusedActivation::gelu) {
      const C u = widened(stored<T>((widened(x[e]) - mean[c]) * factor[c] + offset[c]));
      const C derivative = vector_math::normal_cdf(u) + u * vector_math::normal_density(u);
      return widened(stored<T>(upstream * derivative));
    } else {
      return upstream;
    }
  }
};

// Calls f(g) for the activation. The members of `saved` may be null, except for a GELU.
template <class T, class F>
void with_upstream(const BatchNorm& norm, const BackwardArrays& arrays, const SavedStatistics& saved,
                   const F& f) {
  const auto* const factor = saved.coefficients.as<compute_t<T>>();
  const auto* const offset = factor == nullptr ? nullptr : factor + arrays.x.shape[-1];
  choose_activation(norm.options.activation, [&](auto act) {
    f(Upstream<T, act>{arrays.dy.as<T>(), arrays.x.as<T>(), arrays.y.as<T>(), saved.mean.as<compute_t<T>>(),
                       factor, offset});
  });
}

// Sets scratch.first = sum g and scratch.second = sum g (x - mean), with the mean in scratch.origin. Writes
// dgamma and dbeta from these sums.
template <class T, class G>
void parameter_gradients(CpuStream& stream, ChannelMatrix m, ChannelScratch<compute_t<T>>& scratch, G g,
                         const T* x, const BatchNormGradients& to) {
  using C = compute_t<T>;
  const double* origin = scratch.origin.data();
  const std::int64_t channels = m.channels;
  sum_channels(stream, m, scratch, [=](std::int64_t row, std::int64_t c, double& sum, double& dot) {
    const double gradient = static_cast<double>(g(row * channels + c, c));
    sum += gradient;
    dot += gradient * (static_cast<double>(widened(x[row * channels + c])) - origin[c]);
  });
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    if (to.gamma.wanted())
      put(to.gamma.mode, to.gamma.as<C>()[c], scratch.second[c] * scratch.inverse_std[c]);
    if (to.beta.wanted()) put(to.beta.mode, to.beta.as<C>()[c], scratch.first[c]);
  }
}

// Writes dx = dx_at(element, channel) and dresidual = g. Alternates between the two every few rows: both read
// dy and y, which are then still in the cache.
template <class T, class G, class F>
void data_gradients(CpuStream& stream, ChannelMatrix m, G g, const BatchNormGradients& gradients,
                    const F& dx_at) {
  const std::int64_t rows_at_once = gradients.residual.wanted() ? item_grain(4 * m.channels) : m.rows;
  const auto write = [&](const GradView& to, std::int64_t begin, std::int64_t end, const auto& value) {
    if (!to.wanted()) return;
    with_mode(to.mode, [&]<GradMode kMode>() {
      for_each_element(begin, end, m.channels, [value, out = to.as<T>()](std::int64_t e, std::int64_t c) {
        put<kMode>(out[e], value(e, c));
      });
    });
  };
  parallel_for(stream, m.rows, item_grain(m.channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += rows_at_once) {
      const std::int64_t last = std::min(row + rows_at_once, end);
      write(gradients.x, row, last, dx_at);
      write(gradients.residual, row, last, g);
    }
  });
}

// Loads the mean and inverse standard deviation that the forward function saved into the scratch memory.
template <class C>
void load_saved_statistics(ChannelScratch<C>& scratch, std::int64_t channels, const SavedStatistics& saved) {
  scratch.resize(channels);
  std::copy_n(saved.mean.as<C>(), channels, scratch.origin.begin());
  std::copy_n(saved.inverse_std.as<C>(), channels, scratch.inverse_std.begin());
}

// Writes dx and dresidual from scratch.first and scratch.second, which parameter_gradients() summed over n
// rows.
template <class T, class G>
void data_gradients_from_sums(CpuStream& stream, ChannelMatrix m, ChannelScratch<compute_t<T>>& scratch, G g,
                              const T* x, const compute_t<T>* gamma, const compute_t<T>* mean, double n,
                              const BatchNormGradients& gradients) {
  using C = compute_t<T>;
  const std::vector<double>& istd = scratch.inverse_std;
  for (std::size_t c = 0; gradients.x.wanted() && c < istd.size(); ++c) {
    const double factor = static_cast<double>(gamma[c]) * istd[c];
    scratch.a[c] = static_cast<C>(factor);
    scratch.b[c] = static_cast<C>(-factor * istd[c] * istd[c] * scratch.second[c] / n);
    scratch.c[c] = static_cast<C>(-factor * scratch.first[c] / n);
  }
  const C *a = scratch.a.data(), *b = scratch.b.data(), *offset = scratch.c.data();
  const auto dx_at = [=](std::int64_t e, std::int64_t c) {
    return a[c] * g(e, c) + (b[c] * (widened(x[e]) - mean[c]) + offset[c]);
  };
  data_gradients<T>(stream, m, g, gradients, dx_at);
}

}  // namespace

void sync_batch_norm_sums(CpuStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                          const SavedStatistics& saved, View sums, const BatchNormGradients& gradients) {
  const ChannelMatrix m(arrays.x.shape);
  dispatch(kCpuTypes, arrays.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<ChannelScratch<compute_t<T>>>();
    load_saved_statistics(scratch, m.channels, saved);
    with_upstream<T>(norm, arrays, saved, [&](const auto& g) {
      parameter_gradients(stream, m, scratch, g, arrays.x.as<T>(), gradients);
    });
    const ShardSums<double> shard(sums.as<double>(), m.channels);
    *shard.rows = static_cast<double>(m.rows);
    std::copy(scratch.first.begin(), scratch.first.end(), shard.first);
    std::copy(scratch.second.begin(), scratch.second.end(), shard.second);
  });
}

void sync_batch_norm_backward(CpuStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                              const SavedStatistics& saved, ConstView sums,
                              const BatchNormGradients& gradients) {
  const ChannelMatrix m(arrays.x.shape);
  dispatch(kCpuTypes, arrays.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    load_saved_statistics(scratch, m.channels, saved);
    const ShardSums<const double> total(sums.as<double>(), m.channels);
    scratch.first.assign(total.first, total.first + m.channels);
    scratch.second.assign(total.second, total.second + m.channels);
    with_upstream<T>(norm, arrays, saved, [&](const auto& g) {
      data_gradients_from_sums(stream, m, scratch, g, arrays.x.as<T>(), norm.gamma.as<C>(),
                               saved.mean.as<C>(), *total.rows, gradients);
    });
  });
}

// The gradients of a batch that is one shard.
void batch_norm_backward(CpuStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                         const SavedStatistics& saved, const BatchNormGradients& gradients) {
  std::vector<double> sums(static_cast<std::size_t>(1 + 2 * arrays.x.shape[-1]));
  const View vector{sums.data(), {std::ssize(sums)}, DType::f64};
  sync_batch_norm_sums(stream, norm, arrays, saved, vector, gradients);
  sync_batch_norm_backward(stream, norm, arrays, saved, vector, gradients);
}

void batch_norm_inference_backward(CpuStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                                   const BatchNormGradients& gradients) {
  const ChannelMatrix m(arrays.x.shape);
  dispatch(kCpuTypes, arrays.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    scratch.resize(m.channels);
    std::copy_n(norm.running_mean.as<C>(), m.channels, scratch.origin.begin());
    std::vector<double>& istd = scratch.inverse_std;
    for (std::size_t c = 0; c < istd.size(); ++c) {
      istd[c] = 1 / std::sqrt(static_cast<double>(norm.running_var.as<C>()[c]) + norm.options.epsilon);
      scratch.a[c] = static_cast<C>(static_cast<double>(norm.gamma.as<C>()[c]) * istd[c]);
    }
    with_upstream<T>(norm, arrays, {}, [&](const auto& g) {
      if (gradients.gamma.wanted() || gradients.beta.wanted())
        parameter_gradients(stream, m, scratch, g, arrays.x.as<T>(), gradients);
      const C* factor = scratch.a.data();
      const auto dx_at = [=](std::int64_t e, std::int64_t c) { return factor[c] * g(e, c); };
      data_gradients<T>(stream, m, g, gradients, dx_at);
    });
  });
}

}  // namespace convoy::kernels
