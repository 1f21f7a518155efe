// kernels/batchnorm.h on the GPU: the forward and inference functions. Where clusters of blocks can keep x in shared
// memory, one launch reads x once. Otherwise one launch reads x to compute its moments, of which the last block computes
// the statistics, and another one reads x again to normalize it.
#include "convoy/kernels/batchnorm.h"

#include <cmath>

#include "convoy/kernels/cuda/normalization/normalized.h"
#include "convoy/kernels/cuda/primitives/channel_clusters.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/elementwise_functions.h"

namespace convoy::kernels {
namespace {

using namespace cuda;

// Moments are the mean of x - x[0] and the sum of squared differences from that mean. Subtracting any value
// of the channel, here x[0], preserves the precision when the mean is large.

/// The moments of a thread's rows, from sums of x - pivot and of its square. The pivot is near the mean of the
/// thread's rows, so nothing cancels when the mean is removed from the sums.
template <int kWidth, class C>
class ThreadMoments {
 public:
  /// Adds kRows rows. The first call makes their mean the pivot.
  template <int kRows, class T>
  __device__ void add(const RowPacks<T, kWidth, kRows>& rows) {
    const bool is_first = seen_ == C{0};
    seen_ += C{kRows};
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (is_first) {
        C sum{0};
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum += rows.at(r, i);
        pivot_[i] = sum * (C{1} / C{kRows});
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const C difference = rows.at(r, i) - pivot_[i];
        sums_.first[i] += difference;
        sums_.second[i] = std::fma(difference, difference, sums_.second[i]);
      }
    }
  }
  /// Returns the mean of x - origin, and the sum of squared differences from the mean.
  __device__ ChannelPairs<C, kWidth> about(const ChannelValues<C, kWidth>& origin) const {
    ChannelPairs<C, kWidth> moments;
    if (seen_ == C{0}) return moments;
    const C inverse = C{1} / seen_;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const C mean = sums_.first[i] * inverse;  // of x - pivot
      moments.first[i] = pivot_[i] - origin[i] + mean;
      moments.second[i] = std::fma(-mean, sums_.first[i], sums_.second[i]);
    }
    return moments;
  }

 private:
  C seen_{0};
  C pivot_[kWidth]{};
  ChannelPairs<C, kWidth> sums_;
};

/// Combines the moments of two threads by the formula of Chan, Golub and LeVeque ("Updating formulae and a
/// pairwise algorithm for computing sample variances", 1979). After a level of the tree, thread row r has the
/// moments of the block's rows r, r + level, ….
struct CombineMoments {
  int rows_of_block;
  int row;

  /// The weights of a level. They are the same for all channels of a thread.
  template <class C>
  struct Rule {
    C weight, product;
    bool has_others;

    __device__ void operator()(C& mean, C& squares, C other_mean, C other_squares) const {
      if (!has_others) return;
      const C delta = other_mean - mean;
      mean += delta * weight;
      squares += other_squares + delta * delta * product;
    }
  };

  /// The rows of this thread and of the other one alternate, so their numbers differ by at most 1.
  template <class C>
  __device__ Rule<C> at(int level) const {
    const unsigned stride = static_cast<unsigned>(level);
    const unsigned both =
        row < rows_of_block ? (static_cast<unsigned>(rows_of_block - row) + stride - 1) / stride : 0;
    const unsigned others = both / 2;
    if (others == 0) return {C{0}, C{0}, false};
    const C weight = static_cast<C>(others) / static_cast<C>(both);
    return {weight, static_cast<C>(both - others) * weight, true};
  }
};

/// The per-channel arguments of the functions that compute statistics.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const C *gamma, *beta;
  C *mean, *inverse_std, *running_mean, *running_var;
  C *factor, *offset;
  double epsilon, momentum;
  const double* batch;  // or null

  /// Returns mean, factor and offset of y = (x - mean) factor + offset for channel c, from the mean and the (biased)
  /// variance of its n values, and if `stores` stores the statistics. Loads everything before it stores anything, so that the latencies of the loads overlap.
  __device__ ChannelResults<C> set(std::int64_t c, double n, double batch_mean, double batch_var,
                                   bool stores = true) const {
    const double shift = static_cast<double>(beta[c]), minimum = batch == nullptr ? 0 : 1 / *batch,
                 old_mean = stores ? static_cast<double>(running_mean[c]) : 0,
                 old_var = stores ? static_cast<double>(running_var[c]) : 0;
    const double rate = momentum > minimum ? momentum : minimum;
    const double batch_inverse_std = 1 / std::sqrt(batch_var + epsilon);
    const double scale = static_cast<double>(gamma[c]) * batch_inverse_std;
    const C rounded = static_cast<C>(batch_mean);
    // Compensates for the rounding of the mean, so that a large mean cancels exactly.
    const double rest = shift - (batch_mean - static_cast<double>(rounded)) * scale;
    const ChannelResults<C> result{{rounded, static_cast<C>(scale), static_cast<C>(rest)}};
    if (!stores) return result;
    mean[c] = rounded;
    inverse_std[c] = static_cast<C>(batch_inverse_std);
    factor[c] = result.values[1];
    offset[c] = result.values[2];
    if (n < 2) return result;  // possible for shards; otherwise n = 1 is an error of the caller
    running_mean[c] = updated(old_mean, batch_mean, rate);
    running_var[c] = updated(old_var, batch_var * n / (n - 1), rate);
    return result;
  }
  __device__ C updated(double running, double value, double rate) const {
    return static_cast<C>((1 - rate) * running + rate * value);
  }
};

/// The arguments of a function that computes statistics.
template <class T>
Statistics<T> statistics_of(const BatchNorm& norm, const SavedStatistics& saved) {
  using C = compute_t<T>;
  C* const factor = saved.coefficients.as<C>();
  return {norm.gamma.as<C>(),
          norm.beta.as<C>(),
          saved.mean.as<C>(),
          saved.inverse_std.as<C>(),
          norm.running_mean.as<C>(),
          norm.running_var.as<C>(),
          factor,
          factor + saved.mean.numel(),
          norm.options.epsilon,
          norm.options.momentum,
          norm.batch.as<double>()};
}

/// The moments [1 + 2C] of this shard, for sync_batch_norm_moments().
struct ShardMoments {
  double* moments;
  std::int64_t channels;

  __device__ void set(std::int64_t c, double n, double mean, double var) const {
    if (c == 0) moments[0] = n;
    moments[1 + c] = mean;
    moments[1 + channels + c] = var * n;
  }
};

/// Computes the moments of a block's rows, of which a thread loads kRows together, and calls keep(row, packs) for them.
/// Then calls sum_up(moments, term, finish) as sum_tile() expects these, which calls set(channel, rows, mean, variance).
template <int kRows, int kWidth, class T, class Keep, class Sum, class Set>
__device__ void block_moments(RowScratch<compute_t<T>, kWidth>& scratch, const ChannelTiling& tiling,
                              const ThreadTile& tile, bool is_aligned, const T* x, const Keep& keep,
                              const Sum& sum_up, const Set& set) {
  using C = compute_t<T>;
  ChannelValues<C, kWidth> origin;
  if (tile.has_channels) {
    const Pack<T, kWidth> row = load_pack<kWidth>(x + tile.channel, is_aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) origin.values[i] = widen(row.values[i]);
  }
  ThreadMoments<kWidth, C> own;
  for_row_groups<kRows>(tile, [&](auto count, std::int64_t row) {
    RowPacks<T, kWidth, count()> rows;
    rows.load(x + row * tiling.channels + tile.channel, tile.row_stride * tiling.channels, is_aligned);
    keep(count, rows);
    own.add(rows);
  });
  ChannelPairs<C, kWidth> moments = own.about(origin);
  reduce_rows(scratch, tiling.lanes, moments, CombineMoments{tile.rows_of_block, tile.row});
  // Converts to sums of x - x[0] and of its square, and adds what the products lose. Values that cancel are of
  // the size of the deviation.
  const auto moments_to_sums = [&](int block, C mean, C squares, CompensatedSum<C>& sum,
                                   CompensatedSum<C>& square_sum) {
    const std::int64_t rows = std::min(tiling.block_rows, tiling.rows - block * tiling.block_rows);
    const C n = static_cast<C>(static_cast<int>(rows));
    // Each product is an fma, because a multiplication would be fused with the addition.
    const C total = std::fma(n, mean, C{0}), lost = std::fma(n, mean, -total),
            square = std::fma(total, mean, C{0});
    sum.add(total, lost);
    square_sum.add(squares);
    square_sum.add(square, std::fma(total, mean, -square) + lost * mean);
  };
  sum_up(moments, moments_to_sums, [&](std::int64_t c, double of_x, double of_squares) {
    const double n = static_cast<double>(tiling.rows), shift = of_x / n;
    const double var = of_squares / n - shift * shift;
    return set(c, n, static_cast<double>(widen(x[c])) + shift, var < 0 ? 0 : var);  // keeps NaN
  });
}

constexpr int kMomentRows = 4;  // rows in flight: 64 bytes per thread

// Reads x and writes partials [row_blocks, 2, C]. The last block of each tile calls to.set(channel, rows,
// mean, variance) for its channels.
template <int kWidth, class To, class T>
__global__ void __launch_bounds__(kChannelBlock, kReductionBlocksOfSm)
    batch_norm_moments_kernel(ChannelTiling tiling, bool is_aligned, const T* x, compute_t<T>* partials,
                              unsigned* tickets, To to) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  auto& scratch = shared_memory<TileScratch<compute_t<T>, kWidth>>();
  block_moments<kMomentRows>(
      scratch.block, tiling, tile, is_aligned, x, [](auto, const auto&) {},
      [&](const auto&... of) { sum_tile(scratch, tiling, tile, partials, tickets, of...); },
      [&](auto... of) { to.set(of...); });
}

// Reads the moments [shards, 1 + 2C] and writes those of sync_batch_norm_statistics(). One thread per
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

/// Rows in flight. GELU takes more registers.
template <bool kGelu>
inline constexpr int kNormalizeRows = kGelu ? 2 : 4;

/// Writes y for the rows and channels of a thread. Its first row of x is at `in`, the next ones in_stride further.
/// `mean`, `factor` and `offset` begin at its first channel. kGelu: the activation is a GELU, else that of has_relu.
template <bool kGelu, int kWidth, class T, class C>
__device__ void normalize_rows(const ChannelTiling& tiling, const ThreadTile& tile, bool is_aligned,
                               const T* in, std::int64_t in_stride, const T* residual, const C* mean,
                               const C* factor, const C* offset, bool has_relu, T* y) {
  if (!tile.has_channels) return;
  const ChannelValues<C, kWidth> means(mean), factors(factor), offsets(offset);
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kNormalizeRows<kGelu>>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    RowPacks<T, kWidth, count()> rows, added;
    rows.load(in, in_stride);
    in += count() * in_stride;
    if (residual != nullptr) added.load(residual + first, stride, is_aligned);
#pragma unroll
    for (int r = 0; r < count(); ++r) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        C value = normalized(rows.at(r, i), means[i], factors[i], offsets[i]);
        if (residual != nullptr) value += added.at(r, i);
        if (has_relu) value = Relu{}.forward(value);
        if constexpr (kGelu) value = gelu(narrow<T>(value));
        rows.packs[r].values[i] = narrow<T>(value);
      }
    }
    rows.store(y + first, stride, is_aligned);
  });
}

// Reads x, and residual if it is not null; writes y.
template <bool kGelu, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_normalize_kernel(ChannelTiling tiling, const T* x, const T* residual, const compute_t<T>* mean,
                                const compute_t<T>* factor, const compute_t<T>* offset, bool has_relu, T* y) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  normalize_rows<kGelu, kWidth>(tiling, tile, true, x + tile.first * tiling.channels + tile.channel,
                                tile.row_stride * tiling.channels, residual, mean + tile.channel,
                                factor + tile.channel, offset + tile.channel, has_relu, y);
}

constexpr int kClusterMomentRows = 8;  // rows in flight: 128 bytes per thread, since an SM may have one block

// Reads x, and residual if it is not null; writes y and the statistics. Each cluster has a tile of channels.
template <bool kGelu, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kClusterBlocksOfSm)
    batch_norm_cluster_kernel(ChannelTiling tiling, bool is_aligned, const T* x, const T* residual,
                              Statistics<T> statistics, bool has_relu, T* y) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  auto& scratch = shared_memory<ClusterScratch<compute_t<T>, kWidth>>();
  T *const kept = scratch.template kept<T>(tiling), *next = kept;
  const auto keep = [&](auto count, const auto& rows) {
    rows.store(next, scratch.kKeptStride);
    next += count() * scratch.kKeptStride;
  };
  block_moments<kClusterMomentRows>(
      scratch.block, tiling, tile, is_aligned, x, keep,
      [&](const auto&... of) { sum_cluster(scratch, tiling, tile, of...); },
      [&](auto... of) { return statistics.set(of..., tile.row_block == 0); });
  const int place = tile.lane * kWidth;
  normalize_rows<kGelu, kWidth>(tiling, tile, is_aligned, kept, scratch.kKeptStride, residual,
                                scratch.results[0] + place, scratch.results[1] + place,
                                scratch.results[2] + place, has_relu, y);
  wait_for_cluster();
}

/// Returns f(std::bool_constant<whether the activation is a GELU>).
template <class F>
auto choose_gelu(FusedActivation activation, const F& f) {
  return activation == FusedActivation::gelu ? f(std::true_type{}) : f(std::false_type{});
}

template <class T>
void normalize(CudaStream& stream, const ConstView& x, const ConstView& residual, const compute_t<T>* mean,
               const compute_t<T>* factor, const compute_t<T>* offset, FusedActivation activation,
               const View& y) {
  const std::int64_t channels = x.shape[-1];
  const bool aligned = is_aligned(x.data) && is_aligned(residual.data) && is_aligned(mean) &&
                       is_aligned(factor) && is_aligned(offset) && is_aligned(y.data);
  const auto run = [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, kElementwise);
    choose_gelu(activation, [&](auto is_gelu) {
      launch(LaunchStart::early, stream, tiling.grid(), kChannelBlock, 0,
             batch_norm_normalize_kernel<is_gelu(), width(), T>, tiling, x.as<T>(), residual.as<T>(), mean,
             factor, offset, activation == FusedActivation::relu, y.as<T>());
    });
  };
  choose_width<T>(channels, run, aligned);
}

/// Enqueues the moments of x for `to`. x must not be empty.
template <class T, class To>
void put_moments(CudaStream& stream, const ConstView& x, const To& to) {
  using C = compute_t<T>;
  const std::int64_t channels = x.shape[-1];
  choose_width<T>(channels, [&](auto width) {
    const ChannelTiling tiling = tile_channels(x.numel() / channels, channels, width, reduction(stream));
    const Scratch partials(stream, partial_values(tiling) * sizeof(C));
    launch(LaunchStart::early, stream, tiling.grid(), kChannelBlock, sizeof(TileScratch<C, width()>),
           batch_norm_moments_kernel<width(), To, T>, tiling, is_aligned(x.data), x.as<T>(), partials.as<C>(),
           stream.tickets(), to);
  });
}

}  // namespace

void batch_norm_forward(CudaStream& stream, const BatchNorm& norm, ConstView x, ConstView residual,
                        const SavedStatistics& saved, View y) {
  if (x.numel() == 0) {
    fill(stream, 0, saved.mean);
    fill(stream, 0, saved.inverse_std);
    return;
  }
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = is_aligned(x.data) && is_aligned(residual.data) && is_aligned(y.data);
    const FusedActivation activation = norm.options.activation;
    const bool is_done = choose_gelu(activation, [&](auto is_gelu) {
      return launch_clusters<T>(stream, x.shape, /*arrays=*/1,
                                batch_norm_cluster_kernel<is_gelu(), kVectorWidth<T>, T>, aligned, x.as<T>(),
                                residual.as<T>(), statistics_of<T>(norm, saved),
                                activation == FusedActivation::relu, y.as<T>());
    });
    if (is_done) return;
    put_moments<T>(stream, x, statistics_of<T>(norm, saved));
    batch_norm_normalize(stream, norm, x, residual, saved, y);
  });
}

void batch_norm_normalize(CudaStream& stream, const BatchNorm& norm, ConstView x, ConstView residual,
                          const SavedStatistics& saved, View y) {
  if (x.numel() == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const C* const factor = saved.coefficients.as<C>();
    normalize<T>(stream, x, residual, saved.mean.as<C>(), factor, factor + saved.mean.numel(),
                 norm.options.activation, y);
  });
}

void sync_batch_norm_moments(CudaStream& stream, ConstView x, View moments) {
  if (x.numel() == 0) return fill(stream, 0, moments);
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    put_moments<T>(stream, x, ShardMoments{moments.as<double>(), x.shape[-1]});
  });
}

void sync_batch_norm_statistics(CudaStream& stream, const BatchNorm& norm, ConstView moments,
                                const SavedStatistics& saved) {
  const std::int64_t channels = saved.mean.numel();
  if (channels == 0) return;
  dispatch(kGpuFullTypes, saved.mean.dtype, [&](auto zero) {
    using C = decltype(zero);
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0,
           sync_batch_norm_statistics_kernel<C>, moments.shape[0], channels, moments.as<double>(),
           statistics_of<C>(norm, saved));
  });
}

void batch_norm_inference(CudaStream& stream, const BatchNorm& norm, ConstView x, ConstView residual,
                          View y) {
  if (x.numel() == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const std::int64_t channels = x.shape[-1];
    const Scratch factor(stream, static_cast<std::size_t>(channels) * sizeof(C));
    launch(stream, blocks_for(channels, kChannelBlock), kChannelBlock, 0, batch_norm_factor_kernel<C>,
           channels, norm.gamma.as<C>(), norm.running_var.as<C>(), norm.options.epsilon, factor.as<C>());
    normalize<T>(stream, x, residual, norm.running_mean.as<C>(), factor.as<C>(), norm.beta.as<C>(),
                 norm.options.activation, y);
  });
}

}  // namespace convoy::kernels
