// kernels/batchnorm.h on the CPU: the backward functions.
#include <algorithm>
#include <bit>
#include <cmath>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cpu/normalization/activation.h"
#include "convoy/kernels/cpu/primitives/channel_sums.h"

namespace convoy::kernels {
namespace {

// g, the gradient of the activation's input, and the arrays from which it is computed.
template <class T, NormActivation kActivation>
struct Upstream {
  using C = compute_t<T>;
  const T *dy, *x;
  const T* y;                       // for a ReLU
  const C *mean, *factor, *offset;  // for a GELU

  // Returns g of element e, which belongs to channel c.
  C operator()(std::int64_t e, [[maybe_unused]] std::int64_t c) const {
    const C upstream = widened(dy[e]);
    if constexpr (kActivation == NormActivation::relu) {
      // Selects with a bit mask: a branch on the sign of y would keep the compiler from vectorizing sums and
      // would often be mispredicted.
      using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
      const Bits all_where_positive = Bits{0} - static_cast<Bits>(widened(y[e]) > 0);
      return std::bit_cast<C>(std::bit_cast<Bits>(upstream) & all_where_positive);
    } else if constexpr (kActivation == NormActivation::gelu) {
      const C u = widened(stored<T>((widened(x[e]) - mean[c]) * factor[c] + offset[c]));
      const C derivative = vector_math::normal_cdf(u) + u * vector_math::normal_density(u);
      return widened(stored<T>(upstream * derivative));
    } else {
      return upstream;
    }
  }
};

// Calls f(g) for the activation. The mean and the coefficients [2, C] may be null, except for a GELU.
template <class T, class F>
void with_upstream(NormActivation activation, ConstView dy, ConstView x, ConstView y, ConstView mean,
                   ConstView coefficients, const F& f) {
  const auto* const factor = coefficients.as<compute_t<T>>();
  const auto* const offset = factor == nullptr ? nullptr : factor + x.shape[-1];
  choose_activation(activation, [&](auto act) {
    f(Upstream<T, act>{dy.as<T>(), x.as<T>(), y.as<T>(), mean.as<compute_t<T>>(), factor, offset});
  });
}

template <class C>
void store(GradView gradient, std::size_t c, double value) {
  C* out = gradient.as<C>() + c;
  *out = static_cast<C>(gradient.mode == GradMode::accumulate ? static_cast<double>(*out) + value : value);
}

// Sets scratch.first = sum g and scratch.second = sum g (x - mean), with the mean in scratch.origin. Writes
// dgamma and dbeta from these sums.
template <class T, class G>
void parameter_gradients(CpuStream& stream, ChannelMatrix m, ChannelScratch<compute_t<T>>& scratch, G g,
                         const T* x, GradView dgamma, GradView dbeta) {
  const double* origin = scratch.origin.data();
  const std::int64_t channels = m.channels;
  sum_channels(stream, m, scratch, [=](std::int64_t row, std::int64_t c, double& sum, double& dot) {
    const double gradient = static_cast<double>(g(row * channels + c, c));
    sum += gradient;
    dot += gradient * (static_cast<double>(widened(x[row * channels + c])) - origin[c]);
  });
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    if (dgamma.wanted()) store<compute_t<T>>(dgamma, c, scratch.second[c] * scratch.inverse_std[c]);
    if (dbeta.wanted()) store<compute_t<T>>(dbeta, c, scratch.first[c]);
  }
}

// Writes dx = dx_at(element, channel) and dresidual = g. Alternates between the two every few rows: both read
// dy and y, which are then still in the cache.
template <class T, class G, class F>
void data_gradients(CpuStream& stream, ChannelMatrix m, G g, GradView dx, const F& dx_at,
                    GradView dresidual) {
  const std::int64_t rows_at_once = dresidual.wanted() ? item_grain(4 * m.channels) : m.rows;
  const auto write_rows = [&](std::int64_t begin, std::int64_t end) {
    if (dx.wanted()) {
      T* to = dx.as<T>();
      choose(dx.mode == GradMode::accumulate, [&](auto adds) {
        for_each_element(begin, end, m.channels, [=](std::int64_t e, std::int64_t c) {
          put<adds ? GradMode::accumulate : GradMode::overwrite>(to[e], dx_at(e, c));
        });
      });
    }
    if (dresidual.wanted()) {
      T* to = dresidual.as<T>();
      choose(dresidual.mode == GradMode::accumulate, [&](auto adds) {
        for_each_element(begin, end, m.channels, [=](std::int64_t e, std::int64_t c) {
          put<adds ? GradMode::accumulate : GradMode::overwrite>(to[e], g(e, c));
        });
      });
    }
  };
  parallel_for(stream, m.rows, item_grain(m.channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += rows_at_once)
      write_rows(row, std::min(row + rows_at_once, end));
  });
}

// Loads the mean and inverse standard deviation that the forward function saved into the scratch memory.
template <class C>
void load_saved_statistics(ChannelScratch<C>& scratch, std::int64_t channels, ConstView mean,
                           ConstView inverse_std) {
  scratch.resize(channels);
  std::copy_n(mean.as<C>(), channels, scratch.origin.begin());
  std::copy_n(inverse_std.as<C>(), channels, scratch.inverse_std.begin());
}

// Writes dx and dresidual from scratch.first and scratch.second, which parameter_gradients() summed over n
// rows.
template <class T, class G>
void data_gradients_from_sums(CpuStream& stream, ChannelMatrix m, ChannelScratch<compute_t<T>>& scratch, G g,
                              const T* x, const compute_t<T>* gamma, const compute_t<T>* mean, double n,
                              GradView dx, GradView dresidual) {
  using C = compute_t<T>;
  const std::vector<double>& istd = scratch.inverse_std;
  for (std::size_t c = 0; dx.wanted() && c < istd.size(); ++c) {
    const double factor = static_cast<double>(gamma[c]) * istd[c];
    scratch.a[c] = static_cast<C>(factor);
    scratch.b[c] = static_cast<C>(-factor * istd[c] * istd[c] * scratch.second[c] / n);
    scratch.c[c] = static_cast<C>(-factor * scratch.first[c] / n);
  }
  const C *a = scratch.a.data(), *b = scratch.b.data(), *offset = scratch.c.data();
  const auto dx_at = [=](std::int64_t e, std::int64_t c) {
    return a[c] * g(e, c) + (b[c] * (widened(x[e]) - mean[c]) + offset[c]);
  };
  data_gradients<T>(stream, m, g, dx, dx_at, dresidual);
}

}  // namespace

void batch_norm_backward(CpuStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                         ConstView mean, ConstView inverse_std, ConstView coefficients, GradView dx,
                         GradView dresidual, GradView dgamma, GradView dbeta, BatchNormOptions options) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    load_saved_statistics(scratch, m.channels, mean, inverse_std);
    with_upstream<T>(options.activation, dy, x, y, mean, coefficients, [&](const auto& g) {
      if (dx.wanted() || dgamma.wanted() || dbeta.wanted())
        parameter_gradients(stream, m, scratch, g, x.as<T>(), dgamma, dbeta);
      data_gradients_from_sums(stream, m, scratch, g, x.as<T>(), gamma.as<C>(), mean.as<C>(),
                               static_cast<double>(m.rows), dx, dresidual);
    });
  });
}

void sync_batch_norm_backward_reduce(CpuStream& stream, ConstView dy, ConstView x, ConstView y,
                                     ConstView mean, ConstView inverse_std, ConstView coefficients, View sums,
                                     GradView dgamma, GradView dbeta, BatchNormOptions options) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<ChannelScratch<compute_t<T>>>();
    load_saved_statistics(scratch, m.channels, mean, inverse_std);
    with_upstream<T>(options.activation, dy, x, y, mean, coefficients, [&](const auto& g) {
      parameter_gradients(stream, m, scratch, g, x.as<T>(), dgamma, dbeta);
    });
    const ShardSums<double> shard(sums.as<double>(), m.channels);
    *shard.rows = static_cast<double>(m.rows);
    std::copy(scratch.first.begin(), scratch.first.end(), shard.first);
    std::copy(scratch.second.begin(), scratch.second.end(), shard.second);
  });
}

void sync_batch_norm_backward_elemt(CpuStream& stream, ConstView dy, ConstView x, ConstView y,
                                    ConstView gamma, ConstView mean, ConstView inverse_std,
                                    ConstView coefficients, ConstView sums, GradView dx, GradView dresidual,
                                    BatchNormOptions options) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    load_saved_statistics(scratch, m.channels, mean, inverse_std);
    const ShardSums<const double> total(sums.as<double>(), m.channels);
    scratch.first.assign(total.first, total.first + m.channels);
    scratch.second.assign(total.second, total.second + m.channels);
    with_upstream<T>(options.activation, dy, x, y, mean, coefficients, [&](const auto& g) {
      data_gradients_from_sums(stream, m, scratch, g, x.as<T>(), gamma.as<C>(), mean.as<C>(), *total.rows, dx,
                               dresidual);
    });
  });
}

void batch_norm_inference_backward(CpuStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options) {
  const ChannelMatrix m(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    auto& scratch = stream.local<ChannelScratch<C>>();
    scratch.resize(m.channels);
    std::copy_n(running_mean.as<C>(), m.channels, scratch.origin.begin());
    std::vector<double>& istd = scratch.inverse_std;
    for (std::size_t c = 0; c < istd.size(); ++c) {
      istd[c] = 1 / std::sqrt(static_cast<double>(running_var.as<C>()[c]) + options.epsilon);
      scratch.a[c] = static_cast<C>(static_cast<double>(gamma.as<C>()[c]) * istd[c]);
    }
    with_upstream<T>(options.activation, dy, x, y, {}, {}, [&](const auto& g) {
      if (dgamma.wanted() || dbeta.wanted())
        parameter_gradients(stream, m, scratch, g, x.as<T>(), dgamma, dbeta);
      const C* factor = scratch.a.data();
      const auto dx_at = [=](std::int64_t e, std::int64_t c) { return factor[c] * g(e, c); };
      data_gradients<T>(stream, m, g, dx, dx_at, dresidual);
    });
  });
}

}  // namespace convoy::kernels
