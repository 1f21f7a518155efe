#include "kernels/batchnorm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/cpu/map.h"
#include "kernels/elementwise.h"

namespace convoy {
namespace {

// x as [rows, channels].
struct Matrix {
  std::int64_t rows, channels;
  explicit Matrix(const Shape& shape)
      : rows(shape[-1] > 0 ? shape.numel() / shape[-1] : 0), channels(shape[-1]) {}
};

// What a stream's batch norms need besides their arguments; grows to the largest number of channels and
// stays.
template <class T>
struct Scratch {
  explicit Scratch(const CpuStream&) {}
  void resize(std::int64_t channels) {
    const auto size = static_cast<std::size_t>(channels);
    origin.resize(size);
    inverse_std.resize(size);
    for (std::vector<T>* factors : {&a, &b, &c}) factors->resize(size);
  }

  std::vector<double> block_sums;     // [blocks, 2, channels]
  std::vector<double> first, second;  // [channels]: the two sums
  std::vector<double> origin;         // [channels]: what x is measured from
  std::vector<double> inverse_std;    // [channels]
  std::vector<T> a, b, c;             // [channels]: factors of the elementwise pass
};

constexpr std::int64_t kMaxBlocks = 64;  // of rows: work for as many threads
constexpr std::int64_t kMinBlockRows = 32;
constexpr std::size_t kLanes = 16;  // channels whose f64 sums fit the vector registers

// Sums the rows [begin, end) of `lanes` neighbouring channels; terms(row, c, sum1, sum2) adds those of one
// element.
template <std::size_t lanes, class Terms>
void sum_lanes(std::int64_t begin, std::int64_t end, std::int64_t c, const Terms& terms, double* first,
               double* second) {
  std::array<double, lanes> sum1{};
  std::array<double, lanes> sum2{};
  for (std::int64_t row = begin; row < end; ++row)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      terms(row, c + static_cast<std::int64_t>(lane), sum1[lane], sum2[lane]);
  std::copy(sum1.begin(), sum1.end(), first + c);
  std::copy(sum2.begin(), sum2.end(), second + c);
}

// Two sums over the rows for each channel, to scratch.first and .second. Blocks of rows are summed in
// parallel, then one after the other; blocks and order depend on the shape alone, and so do all bits of the
// result.
template <class T, class Terms>
void sum_channels(CpuStream& stream, Matrix m, Scratch<T>& scratch, const Terms& terms) {
  const std::int64_t block_rows = std::max(kMinBlockRows, (m.rows + kMaxBlocks - 1) / kMaxBlocks);
  const std::int64_t blocks = (m.rows + block_rows - 1) / block_rows;
  scratch.block_sums.resize(static_cast<std::size_t>(blocks * 2 * m.channels));
  parallel_for(stream, blocks, item_grain(block_rows * m.channels),
               [&](std::int64_t first_block, std::int64_t last_block) {
                 for (std::int64_t block = first_block; block < last_block; ++block) {
                   double* first = scratch.block_sums.data() + block * 2 * m.channels;
                   double* second = first + m.channels;
                   const std::int64_t begin = block * block_rows;
                   const std::int64_t end = std::min(begin + block_rows, m.rows);
                   std::int64_t c = 0;
                   for (; c + static_cast<std::int64_t>(kLanes) <= m.channels; c += kLanes)
                     sum_lanes<kLanes>(begin, end, c, terms, first, second);
                   for (; c < m.channels; ++c) sum_lanes<1>(begin, end, c, terms, first, second);
                 }
               });
  const auto channels = static_cast<std::size_t>(m.channels);
  scratch.first.assign(channels, 0.0);
  scratch.second.assign(channels, 0.0);
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block)
    for (std::size_t c = 0; c < channels; ++c) {
      scratch.first[c] += scratch.block_sums[block * 2 * channels + c];
      scratch.second[c] += scratch.block_sums[(block * 2 + 1) * channels + c];
    }
}

// Calls f(element, channel) for every element of the rows [begin, end). What f writes may be what it reads,
// but never at another element: the pragma spares each short row the question.
template <class F>
void for_each_element(std::int64_t begin, std::int64_t end, std::int64_t channels, const F& f) {
  for (std::int64_t row = begin; row < end; ++row)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) f(row * channels + c, c);
}

// Calls f(std::true_type or std::false_type): what is chosen once a call costs the loops in it nothing.
template <class F>
void choose(bool flag, const F& f) {
  if (flag) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

// y = (x - origin) factor + offset with scratch.{a, b, c}: origin is the mean rounded to T and offset makes
// up for the rounding, so that a large mean cancels exactly.
template <class T>
void set_normalization(Scratch<T>& scratch, std::size_t c, double mean, double inverse_std, T gamma, T beta) {
  const double factor = static_cast<double>(gamma) * inverse_std;
  scratch.a[c] = static_cast<T>(mean);
  scratch.b[c] = static_cast<T>(factor);
  scratch.c[c] =
      static_cast<T>(static_cast<double>(beta) - (mean - static_cast<double>(scratch.a[c])) * factor);
}

template <class T>
void normalize(CpuStream& stream, Matrix m, const Scratch<T>& scratch, const T* x, const T* residual, T* y,
               bool relu) {
  const T* origin = scratch.a.data();
  const T* factor = scratch.b.data();
  const T* offset = scratch.c.data();
  choose(residual != nullptr, [&](auto adds) {
    choose(relu, [&](auto rectifies) {
      parallel_for(stream, m.rows, item_grain(m.channels), [&](std::int64_t begin, std::int64_t end) {
        for_each_element(begin, end, m.channels, [=](std::int64_t e, std::int64_t c) {
          T value = (x[e] - origin[c]) * factor[c] + offset[c];
          if constexpr (adds) value += residual[e];
          if constexpr (rectifies) value = T{0} > value ? T{0} : value;  // in this order, NaN stays NaN
          y[e] = value;
        });
      });
    });
  });
}

// g: the gradient of what a ReLU is applied to, from that of the result y. By bits, because a choice of the
// sign of y keeps the compiler from vectorising sums, and is mispredicted half the time.
template <class T, bool kRelu>
struct Upstream {
  const T* dy;
  const T* y;  // null without a ReLU
  T operator()(std::int64_t e) const {
    if constexpr (!kRelu) return dy[e];
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const Bits all_where_positive = Bits{0} - static_cast<Bits>(y[e] > 0);
    return std::bit_cast<T>(std::bit_cast<Bits>(dy[e]) & all_where_positive);
  }
};

template <class T>
void store(GradView gradient, std::size_t c, double value) {
  T* out = gradient.as<T>() + c;
  *out = static_cast<T>(gradient.mode == Mode::add ? static_cast<double>(*out) + value : value);
}

// scratch.first = sum g and .second = sum g (x - mean), with the mean in scratch.origin; from them dgamma
// and dbeta.
template <class T, class G>
void parameter_gradients(CpuStream& stream, Matrix m, Scratch<T>& scratch, G g, const T* x, GradView dgamma,
                         GradView dbeta) {
  const double* origin = scratch.origin.data();
  const std::int64_t channels = m.channels;
  sum_channels(stream, m, scratch, [=](std::int64_t row, std::int64_t c, double& sum, double& product) {
    const double gradient = static_cast<double>(g(row * channels + c));
    sum += gradient;
    product += gradient * (static_cast<double>(x[row * channels + c]) - origin[c]);
  });
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    if (dgamma.wanted()) store<T>(dgamma, c, scratch.second[c] * scratch.inverse_std[c]);
    if (dbeta.wanted()) store<T>(dbeta, c, scratch.first[c]);
  }
}

// dx = of_element(element, channel) and dresidual = g, a few rows of the one and then of the other: both read
// dy and y, which the caches hold by then.
template <class T, class G, class F>
void data_gradients(CpuStream& stream, Matrix m, G g, GradView dx, const F& of_element, GradView dresidual) {
  const std::int64_t rows_at_once = dresidual.wanted() ? item_grain(4 * m.channels) : m.rows;
  const auto write_rows = [&](std::int64_t begin, std::int64_t end) {
    if (dx.wanted()) {
      T* to = dx.as<T>();
      choose(dx.mode == Mode::add, [&](auto adds) {
        for_each_element(begin, end, m.channels, [=](std::int64_t e, std::int64_t c) {
          to[e] = adds ? to[e] + of_element(e, c) : of_element(e, c);
        });
      });
    }
    if (dresidual.wanted()) {
      T* to = dresidual.as<T>();
      choose(dresidual.mode == Mode::add, [&](auto adds) {
        for (std::int64_t e = begin * m.channels; e < end * m.channels; ++e)
          to[e] = adds ? to[e] + g(e) : g(e);
      });
    }
  };
  parallel_for(stream, m.rows, item_grain(m.channels), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += rows_at_once)
      write_rows(row, std::min(row + rows_at_once, end));
  });
}

}  // namespace

void batch_norm_forward(CpuStream& stream, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                        View y, View mean, View inverse_std, View running_mean, View running_var,
                        BatchNormOptions options) {
  const Matrix m(x.shape);
  if (m.rows == 0) {
    fill(stream, 0, mean);
    fill(stream, 0, inverse_std);
    return;
  }
  dispatch_compute(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<Scratch<T>>();
    scratch.resize(m.channels);
    const T* data = x.as<T>();
    std::copy_n(data, m.channels, scratch.origin.begin());  // any row is near enough to the mean
    const double* origin = scratch.origin.data();
    const std::int64_t channels = m.channels;
    sum_channels(stream, m, scratch, [=](std::int64_t row, std::int64_t c, double& sum, double& square) {
      const double difference = static_cast<double>(data[row * channels + c]) - origin[c];
      sum += difference;
      square += difference * difference;
    });

    const double n = static_cast<double>(m.rows);
    const auto update = [&](View running, std::size_t c, double batch) {
      T& value = running.as<T>()[c];
      value = static_cast<T>((1 - options.momentum) * static_cast<double>(value) + options.momentum * batch);
    };
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const double shift = scratch.first[c] / n;
      const double batch_mean = scratch.origin[c] + shift;
      const double batch_var =
          std::max(scratch.second[c] / n - shift * shift, 0.0);  // in this order, NaN stays NaN
      const double batch_inverse_std = 1 / std::sqrt(batch_var + options.epsilon);
      mean.as<T>()[c] = static_cast<T>(batch_mean);
      inverse_std.as<T>()[c] = static_cast<T>(batch_inverse_std);
      update(running_mean, c, batch_mean);
      update(running_var, c, batch_var * n / (n - 1));
      set_normalization(scratch, c, batch_mean, batch_inverse_std, gamma.as<T>()[c], beta.as<T>()[c]);
    }
    normalize(stream, m, scratch, data, residual.as<T>(), y.as<T>(), options.relu);
  });
}

void batch_norm_inference(CpuStream& stream, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                          ConstView running_mean, ConstView running_var, View y, BatchNormOptions options) {
  const Matrix m(x.shape);
  dispatch_compute(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<Scratch<T>>();
    scratch.resize(m.channels);
    for (std::size_t c = 0; c < static_cast<std::size_t>(m.channels); ++c)
      set_normalization(scratch, c, static_cast<double>(running_mean.as<T>()[c]),
                        1 / std::sqrt(static_cast<double>(running_var.as<T>()[c]) + options.epsilon),
                        gamma.as<T>()[c], beta.as<T>()[c]);
    normalize(stream, m, scratch, x.as<T>(), residual.as<T>(), y.as<T>(), options.relu);
  });
}

void batch_norm_backward(CpuStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                         ConstView mean, ConstView inverse_std, GradView dx, GradView dresidual,
                         GradView dgamma, GradView dbeta, BatchNormOptions options) {
  const Matrix m(x.shape);
  dispatch_compute(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<Scratch<T>>();
    scratch.resize(m.channels);
    std::copy_n(mean.as<T>(), m.channels, scratch.origin.begin());
    std::copy_n(inverse_std.as<T>(), m.channels, scratch.inverse_std.begin());
    choose(options.relu, [&](auto relu) {
      const Upstream<T, relu> g{dy.as<T>(), y.as<T>()};
      if (dx.wanted() || dgamma.wanted() || dbeta.wanted())
        parameter_gradients(stream, m, scratch, g, x.as<T>(), dgamma, dbeta);

      const double n = static_cast<double>(m.rows);
      const std::vector<double>& istd = scratch.inverse_std;
      for (std::size_t c = 0; dx.wanted() && c < istd.size(); ++c) {
        const double factor = static_cast<double>(gamma.as<T>()[c]) * istd[c];
        scratch.a[c] = static_cast<T>(factor);
        scratch.b[c] = static_cast<T>(-factor * istd[c] * istd[c] * scratch.second[c] / n);
        scratch.c[c] = static_cast<T>(-factor * scratch.first[c] / n);
      }
      const T *data = x.as<T>(), *origin = mean.as<T>();
      const T *a = scratch.a.data(), *b = scratch.b.data(), *offset = scratch.c.data();
      const auto of_element = [=](std::int64_t e, std::int64_t c) {
        return a[c] * g(e) + (b[c] * (data[e] - origin[c]) + offset[c]);
      };
      data_gradients<T>(stream, m, g, dx, of_element, dresidual);
    });
  });
}

void batch_norm_inference_backward(CpuStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options) {
  const Matrix m(x.shape);
  dispatch_compute(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto& scratch = stream.local<Scratch<T>>();
    scratch.resize(m.channels);
    std::copy_n(running_mean.as<T>(), m.channels, scratch.origin.begin());
    std::vector<double>& istd = scratch.inverse_std;
    for (std::size_t c = 0; c < istd.size(); ++c) {
      istd[c] = 1 / std::sqrt(static_cast<double>(running_var.as<T>()[c]) + options.epsilon);
      scratch.a[c] = static_cast<T>(static_cast<double>(gamma.as<T>()[c]) * istd[c]);
    }
    choose(options.relu, [&](auto relu) {
      const Upstream<T, relu> g{dy.as<T>(), y.as<T>()};
      if (dgamma.wanted() || dbeta.wanted())
        parameter_gradients(stream, m, scratch, g, x.as<T>(), dgamma, dbeta);
      const T* factor = scratch.a.data();
      const auto of_element = [=](std::int64_t e, std::int64_t c) { return factor[c] * g(e); };
      data_gradients<T>(stream, m, g, dx, of_element, dresidual);
    });
  });
}

}  // namespace convoy
