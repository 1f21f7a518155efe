// kernels/batchnorm.h on the GPU: the forward and inference functions. Forward reads x to compute its
// moments, combines the moments of all blocks per channel, and reads x again to normalize it.
#include "convoy/kernels/batchnorm.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/channel_tiles.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

using namespace cuda;

// Moments are the mean of x - x[0] and the sum of squared differences from that mean. Subtracting any value
// of the channel, here x[0], preserves the precision when the mean is large.

/// Adds kRows rows to a thread's moments of `seen` rows (`first` is the mean, `second` the sum of squares).
/// Uses the formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing
/// sample variances", 1979). The moments of the kRows rows are computed in two passes over registers.
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

/// The same formula for the moments of two threads. After a level of the tree, thread row r has the moments
/// of the block's rows r, r + level, …, so both counts follow from the number of rows in the block.
struct CombineMoments {
  int rows_of_block;
  int row;

  __device__ int rows_from(int first, int row_stride) const {
    return first < rows_of_block ? (rows_of_block - first + row_stride - 1) / row_stride : 0;
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

constexpr int kMomentRows = 4;  // rows in flight: 64 bytes per thread

// Reads x and writes partials [row_blocks, 2, C].
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_moments_kernel(ChannelTiling tiling, bool is_aligned, const T* x, compute_t<T>* partials) {
  using C = compute_t<T>;
  const ThreadTile tile(tiling, kWidth);
  ChannelPairs<C, kWidth> moments;
  ChannelValues<C, kWidth> origin;
  if (tile.has_channels) {
    const Pack<T, kWidth> row = load_pack<kWidth>(x + tile.channel, is_aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) origin.values[i] = widen(row.values[i]);
  }
  C seen{0};
  for_row_groups<kMomentRows>(tile, [&](auto count, std::int64_t row) {
    RowPacks<T, kWidth, count()> rows;
    rows.load(x + row * tiling.channels + tile.channel, tile.row_stride * tiling.channels, is_aligned);
    add_rows(rows, origin, seen, moments);
    seen += C{count()};
  });
  reduce_rows(shared_memory<RowScratch<C, kWidth>>(), tiling.lanes, moments,
              CombineMoments{tile.rows_of_block, tile.row});
  store_partials(partials, tiling, tile, moments);
}

/// The per-channel arguments of the forward functions, and the coefficients of y = (x - mean) factor +
/// offset.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const C *gamma, *beta;
  C *mean, *inverse_std, *running_mean, *running_var;
  C *factor, *offset;
  double epsilon, momentum;

  // Sets the statistics and coefficients of channel c from the mean and variance of its n values.
  __device__ void set(std::int64_t c, double n, double batch_mean, double batch_var) const {
    const double batch_inverse_std = 1 / std::sqrt(batch_var + epsilon);
    const double scale = static_cast<double>(gamma[c]) * batch_inverse_std;
    const C rounded = static_cast<C>(batch_mean);
    mean[c] = rounded;
    inverse_std[c] = static_cast<C>(batch_inverse_std);
    factor[c] = static_cast<C>(scale);
    // Compensates for the rounding of the mean, so that a large mean cancels exactly.
    offset[c] =
        static_cast<C>(static_cast<double>(beta[c]) - (batch_mean - static_cast<double>(rounded)) * scale);
    if (n < 2)
      return;  // possible in sync_batch_norm_elemt(); n = 1 is a caller's error in batch_norm_forward()
    update(running_mean[c], batch_mean);
    update(running_var[c], batch_var * n / (n - 1));
  }
  __device__ void update(C& running, double batch) const {
    running = static_cast<C>((1 - momentum) * static_cast<double>(running) + momentum * batch);
  }
};

/// The mean and the (biased) variance of a channel.
struct MeanAndVariance {
  double mean, var;
};

/// Combines the partial moments of all blocks. All threads of the block must call it. The result is valid if
/// is_final_thread().
template <class T>
__device__ MeanAndVariance combine_blocks(const ChannelTiling& tiling, const compute_t<T>* partials,
                                          const T* x) {
  // Converts to sums of x - x[0] and of its square, in f64. Values that cancel are of the size of the
  // deviation.
  const auto moments_to_sums = [&](int block, double mean, double squares) {
    const std::int64_t before = block * tiling.block_rows;
    const double n = static_cast<double>(std::min(tiling.block_rows, tiling.rows - before));
    return ChannelPairs<double, 1>{{n * mean}, {squares + n * mean * mean}};
  };
  const ChannelPairs<double, 1> sums = sum_partials(shared_memory<FinalScratch>(), partials,
                                                    tiling.row_blocks, tiling.channels, moments_to_sums);
  if (!is_final_thread(tiling.channels)) return {};
  const double n = static_cast<double>(tiling.rows);
  const double shift = sums.first[0] / n;
  const double var = sums.second[0] / n - shift * shift;
  return {static_cast<double>(widen(x[final_channel()])) + shift,
          var < 0 ? 0 : var};  // this form propagates NaN
}

// Reads partials and writes the [C] outputs of batch_norm_forward().
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_statistics_kernel(ChannelTiling tiling, const compute_t<T>* partials, const T* x,
                                 Statistics<T> statistics) {
  const MeanAndVariance batch = combine_blocks<T>(tiling, partials, x);
  if (is_final_thread(tiling.channels))
    statistics.set(final_channel(), static_cast<double>(tiling.rows), batch.mean, batch.var);
}

// Reads partials and writes the moments [1 + 2C] of this shard.
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    sync_batch_norm_stats_kernel(ChannelTiling tiling, const compute_t<T>* partials, const T* x,
                                 double* moments) {
  const MeanAndVariance shard = combine_blocks<T>(tiling, partials, x);
  if (!is_final_thread(tiling.channels)) return;
  const std::int64_t c = final_channel();
  const double n = static_cast<double>(tiling.rows);
  if (c == 0) moments[0] = n;
  moments[1 + c] = shard.mean;
  moments[1 + tiling.channels + c] = shard.var * n;
}

// Reads the moments [shards, 1 + 2C] and writes the [C] outputs of sync_batch_norm_elemt(). One thread per
// channel.
template <class T>
__global__ void __launch_bounds__(kChannelBlock)
    sync_batch_norm_statistics_kernel(std::int64_t shards, std::int64_t channels, const double* moments,
                                      Statistics<T> statistics) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c >= channels) return;
  double n = 0, mean = 0, squares = 0;
  for (const double* shard = moments; shard < moments + shards * (1 + 2 * channels);
       shard += 1 + 2 * channels) {
    const double rows = shard[0];
    if (rows == 0) continue;
    const double weight = rows / (n + rows);
    const double delta = shard[1 + c] - mean;
    mean += delta * weight;
    squares += shard[1 + channels + c] + delta * delta * n * weight;
    n += rows;
  }
  statistics.set(c, n, mean, n > 0 ? squares / n : 0);
}

// Computes factor = gamma / sqrt(var + epsilon). One thread per channel.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_factor_kernel(std::int64_t channels, const C* gamma, const C* var, double epsilon, C* factor) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c < channels)
    factor[c] = static_cast<C>(static_cast<double>(gamma[c]) *
                               (1 / std::sqrt(static_cast<double>(var[c]) + epsilon)));
}

constexpr int kNormalizeRows = 4;  // rows in flight

// Reads x, and residual if it is not null; writes y.
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_normalize_kernel(ChannelTiling tiling, const T* x, const T* residual, const compute_t<T>* mean,
                                const compute_t<T>* factor, const compute_t<T>* offset, bool relu, T* y) {
  using C = compute_t<T>;
  const ThreadTile tile(tiling, kWidth);
  if (!tile.has_channels) return;
  const ChannelValues<C, kWidth> means(mean + tile.channel);
  const ChannelValues<C, kWidth> factors(factor + tile.channel);
  const ChannelValues<C, kWidth> offsets(offset + tile.channel);
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kNormalizeRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
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
        if (relu) value = C{0} > value ? C{0} : value;  // this operand order propagates NaN
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
  const auto run = [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, kMapBlocks);
    launch(stream, tiling.blocks(), kChannelBlock, 0, batch_norm_normalize_kernel<width(), T>, tiling,
           x.as<T>(), residual.as<T>(), mean, factor, offset, relu, y.as<T>());
  };
  choose_width<T>(channels, run, aligned);
}

/// Temporary device memory for the factor and the offset of a normalization, [C] each.
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

/// Enqueues the partial moments of x, then calls f(tiling, partials). x must not be empty.
template <class T, class F>
void with_moments(CudaStream& stream, const ConstView& x, const F& f) {
  using C = compute_t<T>;
  const std::int64_t channels = x.shape[-1];
  choose_width<T>(channels, [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, kReductionBlocks);
    const Scratch partials(stream, partial_values(tiling) * sizeof(C));
    launch(stream, tiling.blocks(), kChannelBlock, sizeof(RowScratch<C, width()>),
           batch_norm_moments_kernel<width(), T>, tiling, is_aligned(x.data), x.as<T>(), partials.as<C>());
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
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Normalization<T> to(stream, x.shape[-1]);
    const Statistics<T> statistics =
        to.statistics(gamma, beta, mean, inverse_std, running_mean, running_var, options);
    with_moments<T>(stream, x, [&](const ChannelTiling& tiling, const compute_t<T>* partials) {
      launch(stream, blocks_for(tiling.channels, kFinalLanes), kChannelBlock, sizeof(FinalScratch),
             batch_norm_statistics_kernel<T>, tiling, partials, x.as<T>(), statistics);
    });
    normalize<T>(stream, x, residual, statistics.mean, to.factor(), to.offset(), options.relu, y);
  });
}

void sync_batch_norm_stats(CudaStream& stream, ConstView x, View moments) {
  if (x.numel() == 0) return fill(stream, 0, moments);
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_moments<T>(stream, x, [&](const ChannelTiling& tiling, const compute_t<T>* partials) {
      launch(stream, blocks_for(tiling.channels, kFinalLanes), kChannelBlock, sizeof(FinalScratch),
             sync_batch_norm_stats_kernel<T>, tiling, partials, x.as<T>(), moments.as<double>());
    });
  });
}

void sync_batch_norm_elemt(CudaStream& stream, ConstView x, ConstView gamma, ConstView beta,
                           ConstView residual, ConstView moments, View y, View mean, View inverse_std,
                           View running_mean, View running_var, BatchNormOptions options) {
  const std::int64_t channels = x.shape[-1];
  if (channels == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Normalization<T> to(stream, channels);
    const Statistics<T> statistics =
        to.statistics(gamma, beta, mean, inverse_std, running_mean, running_var, options);
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0,
           sync_batch_norm_statistics_kernel<T>, moments.shape[0], channels, moments.as<double>(),
           statistics);
    if (x.numel() > 0)
      normalize<T>(stream, x, residual, statistics.mean, to.factor(), to.offset(), options.relu, y);
  });
}

void batch_norm_inference(CudaStream& stream, ConstView x, ConstView gamma, ConstView beta,
                          ConstView residual, ConstView running_mean, ConstView running_var, View y,
                          BatchNormOptions options) {
  if (x.numel() == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const std::int64_t channels = x.shape[-1];
    const Scratch factor(stream, static_cast<std::size_t>(channels) * sizeof(C));
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0, batch_norm_factor_kernel<C>,
           channels, gamma.as<C>(), running_var.as<C>(), options.epsilon, factor.as<C>());
    normalize<T>(stream, x, residual, running_mean.as<C>(), factor.as<C>(), beta.as<C>(), options.relu, y);
  });
}

}  // namespace convoy::kernels
