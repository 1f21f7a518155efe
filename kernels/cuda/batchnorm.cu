// kernels/batchnorm.h on the GPU: forward and inference. Forward reads x for its moments, combines those of
// all blocks channel by channel, and reads x again to normalize it.
#include "kernels/batchnorm.h"

#include <cmath>

#include "kernels/cuda/channel_tiles.h"
#include "kernels/elementwise.h"

namespace convoy {
namespace {

using namespace cuda;

// Moments: the mean and the sum of squared differences from it, of x - x[0]: measured from any value of its
// own channel, a large mean keeps its digits.

/// Takes kRows rows into a thread's moments (`first` the mean, `second` the squares) of `seen` rows, by the
/// formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample
/// variances", 1979). The rows' own moments come from registers, in two passes.
template <int kRows, int kWidth, class T>
__device__ void add_rows(const RowPacks<T, kWidth, kRows>& rows,
                         const ChannelValues<compute_t<T>, kWidth>& origin, compute_t<T> seen,
                         ChannelPairs<compute_t<T>, kWidth>& moments) {
  using C = compute_t<T>;
  const C weight = C{kRows} / (seen + C{kRows});
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    C sum{0};
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum += rows.at(r, i) - origin[i];
    const C mean = sum * (C{1} / C{kRows});
    C squares{0};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const C difference = rows.at(r, i) - origin[i] - mean;
      squares += difference * difference;
    }
    const C delta = mean - moments.first[i];
    moments.first[i] += delta * weight;
    moments.second[i] += squares + delta * delta * (seen * weight);
  }
}

/// The same formula for two threads. After a level of the tree, thread row r has rows r, r + level, … of the
/// block, so both counts follow from their number.
struct CombineMoments {
  int rows_of_block;
  int row;

  __device__ int rows_from(int first, int apart) const {
    return first < rows_of_block ? (rows_of_block - first + apart - 1) / apart : 0;
  }
  template <class C>
  __device__ void operator()(int level, C& mean, C& squares, C other_mean, C other_squares) const {
    const int others = rows_from(row + level, 2 * level);
    if (others == 0) return;
    const C here = static_cast<C>(rows_from(row, 2 * level));
    const C weight = static_cast<C>(others) / (here + static_cast<C>(others));
    const C delta = other_mean - mean;
    mean += delta * weight;
    squares += other_squares + delta * delta * (here * weight);
  }
};

constexpr int kMomentRows = 4;  // in flight: 64 bytes of each thread

// Reads x; writes partials [row_blocks, 2, C].
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_moments_kernel(ChannelTiling tiling, const T* x, compute_t<T>* partials) {
  using C = compute_t<T>;
  const ChannelPlace place(tiling, kWidth);
  ChannelPairs<C, kWidth> moments;
  ChannelValues<C, kWidth> origin;
  if (place.has_channels) {
    const Pack<T, kWidth> row = load_pack<kWidth>(x + place.channel);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) origin.values[i] = widen(row.values[i]);
  }
  C seen{0};
  for_row_groups<kMomentRows>(place, [&](auto count, std::int64_t row) {
    RowPacks<T, kWidth, count()> rows;
    rows.load(x + row * tiling.channels + place.channel, place.apart * tiling.channels);
    add_rows(rows, origin, seen, moments);
    seen += C{count()};
  });
  reduce_rows(shared_memory<RowTree<C, kWidth>>(), tiling.lanes, moments,
              CombineMoments{place.rows_of_block, place.row});
  store_partials(partials, tiling, place, moments);
}

/// A normalization is y = (x - mean) factor + offset.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const C *gamma, *beta;
  C *mean, *inverse_std, *running_mean, *running_var;
  C *factor, *offset;
  double epsilon, momentum;

  // Of one channel with n values, from its mean and variance.
  __device__ void set(std::int64_t c, double n, double batch_mean, double batch_var) const {
    const double batch_inverse_std = 1 / std::sqrt(batch_var + epsilon);
    const double scale = static_cast<double>(gamma[c]) * batch_inverse_std;
    const C rounded = static_cast<C>(batch_mean);
    mean[c] = rounded;
    inverse_std[c] = static_cast<C>(batch_inverse_std);
    factor[c] = static_cast<C>(scale);
    // Makes up for the rounding of the mean, so that a large one cancels exactly.
    offset[c] =
        static_cast<C>(static_cast<double>(beta[c]) - (batch_mean - static_cast<double>(rounded)) * scale);
    if (n < 2) return;  // of parts: alone, a row is the caller's error
    update(running_mean[c], batch_mean);
    update(running_var[c], batch_var * n / (n - 1));
  }
  __device__ void update(C& running, double batch) const {
    running = static_cast<C>((1 - momentum) * static_cast<double>(running) + momentum * batch);
  }
};

/// The mean and the (biased) variance of a channel: of its final thread.
struct MeanAndVariance {
  double mean, var;
};

/// By all threads of a kernel that sums partials.
template <class T>
__device__ MeanAndVariance combine_blocks(const ChannelTiling& tiling, const compute_t<T>* partials,
                                          const T* x) {
  // The sums of x - x[0] and of its square, in f64: what cancels there is of the size of the deviation.
  const auto moments_to_sums = [&](int block, double mean, double squares) {
    const std::int64_t before = block * tiling.block_rows;
    const double n = static_cast<double>(std::min(tiling.block_rows, tiling.rows - before));
    return ChannelPairs<double, 1>{{n * mean}, {squares + n * mean * mean}};
  };
  const ChannelPairs<double, 1> sums =
      sum_partials(shared_memory<FinalTree>(), partials, tiling.row_blocks, tiling.channels, moments_to_sums);
  if (!is_final_thread(tiling.channels)) return {};
  const double n = static_cast<double>(tiling.rows);
  const double shift = sums.first[0] / n;
  const double var = sums.second[0] / n - shift * shift;
  return {static_cast<double>(widen(x[final_channel()])) + shift,
          var < 0 ? 0 : var};  // in this order, NaN stays NaN
}

// A thread for each channel in the end. Reads partials, writes what is [C].
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_statistics_kernel(ChannelTiling tiling, const compute_t<T>* partials, const T* x,
                                 Statistics<T> statistics) {
  const MeanAndVariance batch = combine_blocks<T>(tiling, partials, x);
  if (is_final_thread(tiling.channels))
    statistics.set(final_channel(), static_cast<double>(tiling.rows), batch.mean, batch.var);
}

// The same, but that it writes the moments [1 + 2C] of a part.
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_part_moments_kernel(ChannelTiling tiling, const compute_t<T>* partials, const T* x,
                                   double* moments) {
  const MeanAndVariance part = combine_blocks<T>(tiling, partials, x);
  if (!is_final_thread(tiling.channels)) return;
  const std::int64_t c = final_channel();
  const double n = static_cast<double>(tiling.rows);
  if (c == 0) moments[0] = n;
  moments[1 + c] = part.mean;
  moments[1 + tiling.channels + c] = part.var * n;
}

// A thread for each channel. Reads the moments [parts, 1 + 2C], writes what is [C].
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_part_statistics_kernel(std::int64_t parts, std::int64_t channels, const double* moments,
                                      Statistics<T> statistics) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c >= channels) return;
  double n = 0, mean = 0, squares = 0;
  for (const double* part = moments; part < moments + parts * (1 + 2 * channels); part += 1 + 2 * channels) {
    const double rows = part[0];
    if (rows == 0) continue;
    const double weight = rows / (n + rows);
    const double delta = part[1 + c] - mean;
    mean += delta * weight;
    squares += part[1 + channels + c] + delta * delta * n * weight;
    n += rows;
  }
  statistics.set(c, n, mean, n > 0 ? squares / n : 0);
}

// A thread for each channel: factor = gamma / sqrt(var + epsilon).
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_factor_kernel(std::int64_t channels, const C* gamma, const C* var, double epsilon, C* factor) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c < channels)
    factor[c] = static_cast<C>(static_cast<double>(gamma[c]) *
                               (1 / std::sqrt(static_cast<double>(var[c]) + epsilon)));
}

constexpr int kNormalizeRows = 4;  // in flight

// Reads x, and residual where it is not null; writes y.
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_normalize_kernel(ChannelTiling tiling, const T* x, const T* residual, const compute_t<T>* mean,
                                const compute_t<T>* factor, const compute_t<T>* offset, bool relu, T* y) {
  using C = compute_t<T>;
  const ChannelPlace place(tiling, kWidth);
  if (!place.has_channels) return;
  const ChannelValues<C, kWidth> means(mean + place.channel);
  const ChannelValues<C, kWidth> factors(factor + place.channel);
  const ChannelValues<C, kWidth> offsets(offset + place.channel);
  const std::int64_t stride = place.apart * tiling.channels;
  for_row_groups<kNormalizeRows>(place, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + place.channel;
    RowPacks<T, kWidth, count()> in, added;
    in.load(x + first, stride);
    if (residual != nullptr) added.load(residual + first, stride);
#pragma unroll
    for (int r = 0; r < count(); ++r) {
      Pack<T, kWidth> out;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        C value = (in.at(r, i) - means[i]) * factors[i] + offsets[i];
        if (residual != nullptr) value += added.at(r, i);
        if (relu) value = C{0} > value ? C{0} : value;  // in this order, NaN stays NaN
        out.values[i] = narrow<T>(value);
      }
      store_pack(y + first + r * stride, out);
    }
  });
}

template <class T>
void normalize(CudaStream& stream, const ConstView& x, const ConstView& residual, const compute_t<T>* mean,
               const compute_t<T>* factor, const compute_t<T>* offset, bool relu, const View& y) {
  const std::int64_t channels = x.shape[-1];
  const bool aligned = is_aligned(x.data) && is_aligned(residual.data) && is_aligned(mean) &&
                       is_aligned(factor) && is_aligned(offset) && is_aligned(y.data);
  choose_width<T>(channels, aligned, [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, kMapBlocks);
    launch(stream, tiling.blocks(), kChannelBlock, 0, batch_norm_normalize_kernel<width(), T>, tiling,
           x.as<T>(), residual.as<T>(), mean, factor, offset, relu, y.as<T>());
  });
}

/// The factor and the offset of a normalization, [C] each, while it is computed.
template <class T>
class Normalization {
 public:
  using C = compute_t<T>;
  Normalization(CudaStream& stream, std::int64_t channels)
      : channels_(channels), memory_(stream, 2 * static_cast<std::size_t>(channels) * sizeof(C)) {}

  C* factor() const { return memory_.as<C>(); }
  C* offset() const { return factor() + channels_; }
  Statistics<T> statistics(const ConstView& gamma, const ConstView& beta, const View& mean,
                           const View& inverse_std, const View& running_mean, const View& running_var,
                           const BatchNormOptions& options) const {
    return {gamma.as<C>(),       beta.as<C>(), mean.as<C>(), inverse_std.as<C>(), running_mean.as<C>(),
            running_var.as<C>(), factor(),     offset(),     options.epsilon,     options.momentum};
  }

 private:
  std::int64_t channels_;
  Scratch memory_;
};

/// Calls f(tiling, partials) with the moments of x's blocks; x is not empty.
template <class T, class F>
void with_moments(CudaStream& stream, const ConstView& x, const F& f) {
  using C = compute_t<T>;
  const std::int64_t channels = x.shape[-1];
  choose_width<T>(channels, is_aligned(x.data), [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, kReductionBlocks);
    const Scratch partials(stream, partial_values(tiling) * sizeof(C));
    launch(stream, tiling.blocks(), kChannelBlock, sizeof(RowTree<C, width()>),
           batch_norm_moments_kernel<width(), T>, tiling, x.as<T>(), partials.as<C>());
    f(tiling, partials.as<C>());
  });
}

}  // namespace

void batch_norm_forward(CudaStream& stream, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                        View y, View mean, View inverse_std, View running_mean, View running_var,
                        BatchNormOptions options) {
  if (x.numel() == 0) {
    fill(stream, 0, mean);
    fill(stream, 0, inverse_std);
    return;
  }
  dispatch_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Normalization<T> to(stream, x.shape[-1]);
    const Statistics<T> statistics =
        to.statistics(gamma, beta, mean, inverse_std, running_mean, running_var, options);
    with_moments<T>(stream, x, [&](const ChannelTiling& tiling, const compute_t<T>* partials) {
      launch(stream, blocks_for(tiling.channels, kFinalLanes), kChannelBlock, sizeof(FinalTree),
             batch_norm_statistics_kernel<T>, tiling, partials, x.as<T>(), statistics);
    });
    normalize<T>(stream, x, residual, statistics.mean, to.factor(), to.offset(), options.relu, y);
  });
}

void batch_norm_moments(CudaStream& stream, ConstView x, View moments) {
  if (x.numel() == 0) return fill(stream, 0, moments);
  dispatch_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_moments<T>(stream, x, [&](const ChannelTiling& tiling, const compute_t<T>* partials) {
      launch(stream, blocks_for(tiling.channels, kFinalLanes), kChannelBlock, sizeof(FinalTree),
             batch_norm_part_moments_kernel<T>, tiling, partials, x.as<T>(), moments.as<double>());
    });
  });
}

void batch_norm_forward_of_part(CudaStream& stream, ConstView x, ConstView gamma, ConstView beta,
                                ConstView residual, ConstView moments, View y, View mean, View inverse_std,
                                View running_mean, View running_var, BatchNormOptions options) {
  const std::int64_t channels = x.shape[-1];
  if (channels == 0) return;
  dispatch_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Normalization<T> to(stream, channels);
    const Statistics<T> statistics =
        to.statistics(gamma, beta, mean, inverse_std, running_mean, running_var, options);
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0,
           batch_norm_part_statistics_kernel<T>, moments.shape[0], channels, moments.as<double>(),
           statistics);
    if (x.numel() > 0)
      normalize<T>(stream, x, residual, statistics.mean, to.factor(), to.offset(), options.relu, y);
  });
}

void batch_norm_inference(CudaStream& stream, ConstView x, ConstView gamma, ConstView beta,
                          ConstView residual, ConstView running_mean, ConstView running_var, View y,
                          BatchNormOptions options) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const std::int64_t channels = x.shape[-1];
    const Scratch factor(stream, static_cast<std::size_t>(channels) * sizeof(C));
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0, batch_norm_factor_kernel<C>,
           channels, gamma.as<C>(), running_var.as<C>(), options.epsilon, factor.as<C>());
    normalize<T>(stream, x, residual, running_mean.as<C>(), factor.as<C>(), beta.as<C>(), options.relu, y);
  });
}

}  // namespace convoy
