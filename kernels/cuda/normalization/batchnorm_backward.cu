// kernels/batchnorm.h on the GPU: the backward functions. They read dy, x (and y if there is a ReLU) to
// compute two sums over the rows of each channel. Then they combine the sums of all blocks, and read the
// arrays again to compute dx and dresidual.
#include <cmath>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cuda/primitives/channel_tiles.h"

namespace convoy::kernels {
namespace {

using namespace cuda;

constexpr int kBackwardRows = 2;  // rows in flight, of up to three arrays: 96 bytes per thread

/// Rows of g, the gradient of the ReLU's input, computed from dy and the ReLU's result y. y is null if there
/// is no ReLU; then g = dy.
template <class T, int kWidth, int kRows>
struct UpstreamRows {
  RowPacks<T, kWidth, kRows> dy, y;
  bool relu;

  __device__ UpstreamRows(const T* dy_from, const T* y_from, std::int64_t first, std::int64_t stride,
                          bool is_aligned = true)
      : relu(y_from != nullptr) {
    dy.load(dy_from + first, stride, is_aligned);
    if (relu) y.load(y_from + first, stride, is_aligned);
  }
  __device__ compute_t<T> at(int r, int i) const {
    const compute_t<T> gradient = dy.at(r, i);
    if (relu) return y.at(r, i) > compute_t<T>{0} ? gradient : compute_t<T>{0};
    return gradient;
  }
};

// Reads dy, x, and y if it is not null; writes partials [row_blocks, 2, C]: the sums of g and of g (x -
// mean).
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_gradient_sums_kernel(ChannelTiling tiling, bool is_aligned, const T* dy, const T* x,
                                    const T* y, const compute_t<T>* mean, compute_t<T>* partials) {
  using C = compute_t<T>;
  const ThreadTile tile(tiling, kWidth);
  ChannelPairs<C, kWidth> sums;
  ChannelValues<C, kWidth> means;
  if (tile.has_channels) means = ChannelValues<C, kWidth>(mean + tile.channel, is_aligned);
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kBackwardRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    const UpstreamRows<T, kWidth, count()> g(dy, y, first, stride, is_aligned);
    RowPacks<T, kWidth, count()> data;
    data.load(x + first, stride, is_aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      C sum{0}, dot{0};
#pragma unroll
      for (int r = 0; r < count(); ++r) {
        sum += g.at(r, i);
        dot += g.at(r, i) * (data.at(r, i) - means[i]);
      }
      sums.first[i] += sum;
      sums.second[i] += dot;
    }
  });
  reduce_rows(shared_memory<RowScratch<C, kWidth>>(), tiling.lanes, sums, AddPairs{});
  store_partials(partials, tiling, tile, sums);
}

/// A gradient [C] and its mode; `values` is null if the gradient is unwanted.
template <class C>
struct ChannelGradient {
  C* values;
  bool adds;

  explicit ChannelGradient(const GradView& view)
      : values(view.as<C>()), adds(view.mode == GradMode::accumulate) {}
  __device__ void put(std::int64_t c, double value) const {
    if (values != nullptr) values[c] = static_cast<C>(adds ? static_cast<double>(values[c]) + value : value);
  }
};

/// The coefficients [C] of dx = direct g + (slope (x - mean) + constant). If the statistics are constants,
/// slope and constant are null and dx = direct g.
template <class C>
struct ChannelFactors {
  C *direct, *slope, *constant;
};

/// The arguments from which the final thread of a channel computes gradients and factors, besides the two
/// sums.
template <class C>
struct GradientRules {
  const C *gamma, *spread;  // spread: inverse_std, or the running variance
  bool spread_is_var;
  double epsilon;
  ChannelGradient<C> dgamma, dbeta;
  ChannelFactors<C> factors;  // direct is null if dx is unwanted

  __device__ double inverse_std_of(std::int64_t c) const {
    const double given = static_cast<double>(spread[c]);
    return spread_is_var ? 1 / std::sqrt(given + epsilon) : given;
  }
  __device__ void put_gradients(std::int64_t c, double sum, double dot) const {
    dgamma.put(c, dot * inverse_std_of(c));
    dbeta.put(c, sum);
  }
  __device__ void put_factors(std::int64_t c, double n, double sum, double dot) const {
    if (factors.direct == nullptr) return;
    const double inverse_std = inverse_std_of(c);
    const double direct = static_cast<double>(gamma[c]) * inverse_std;
    factors.direct[c] = static_cast<C>(direct);
    if (factors.slope == nullptr) return;
    factors.slope[c] = static_cast<C>(-direct * inverse_std * inverse_std * dot / n);
    factors.constant[c] = static_cast<C>(-direct * sum / n);
  }
};

// Reads partials (row_blocks may be 0) and writes dgamma, dbeta and the factors, all [C]. Also writes the
// sums [1 + 2C] of this shard if shard_sums is not null.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_gradients_kernel(std::int64_t rows, std::int64_t channels, int row_blocks, const C* partials,
                                GradientRules<C> rules, double* shard_sums) {
  const auto unchanged = [](int /*block*/, double sum, double dot) {
    return ChannelPairs<double, 1>{{sum}, {dot}};
  };
  const ChannelPairs<double, 1> sums =
      sum_partials(shared_memory<FinalScratch>(), partials, row_blocks, channels, unchanged);
  if (!is_final_thread(channels)) return;
  const std::int64_t c = final_channel();
  const double n = static_cast<double>(rows), sum = sums.first[0], dot = sums.second[0];
  rules.put_gradients(c, sum, dot);
  rules.put_factors(c, n, sum, dot);
  if (shard_sums == nullptr) return;
  if (c == 0) shard_sums[0] = n;
  shard_sums[1 + c] = sum;
  shard_sums[1 + channels + c] = dot;
}

// Reads the sums [1 + 2C] over all shards and writes the factors. One thread per channel.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    sync_batch_norm_factors_kernel(std::int64_t channels, const double* sums, GradientRules<C> rules) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c < channels) rules.put_factors(c, sums[0], sums[1 + c], sums[1 + channels + c]);
}

/// A gradient of x's shape and its mode; `values` is null if the gradient is unwanted.
template <class T>
struct DataGradient {
  T* values;
  bool adds;

  explicit DataGradient(const GradView& view)
      : values(view.as<T>()), adds(view.mode == GradMode::accumulate) {}

  /// Stores or adds kRows packs from index `first` on, `stride` elements apart. value_at(r, i) is the value
  /// of element i of row r.
  template <int kWidth, int kRows, class F>
  __device__ void put(std::int64_t first, std::int64_t stride, const F& value_at) const {
    if (values == nullptr) return;
    RowPacks<T, kWidth, kRows> before;
    if (adds) before.load(values + first, stride);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Pack<T, kWidth> out;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out.values[i] = narrow<T>(adds ? before.at(r, i) + value_at(r, i) : value_at(r, i));
      store_pack(values + first + r * stride, out);
    }
  }
};

// Reads dy, y if it is not null, and x if the slope is not null; writes dx and dresidual. These may be the
// same array, since dx is stored before dresidual is loaded.
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_data_gradients_kernel(ChannelTiling tiling, const T* dy, const T* x, const T* y,
                                     const compute_t<T>* mean, ChannelFactors<compute_t<T>> factors,
                                     DataGradient<T> dx, DataGradient<T> dresidual) {
  using C = compute_t<T>;
  const ThreadTile tile(tiling, kWidth);
  if (!tile.has_channels) return;
  const bool has_slope = factors.slope != nullptr;
  ChannelValues<C, kWidth> direct, slope, constant, means;
  if (dx.values != nullptr) direct = ChannelValues<C, kWidth>(factors.direct + tile.channel);
  if (has_slope) {
    slope = ChannelValues<C, kWidth>(factors.slope + tile.channel);
    constant = ChannelValues<C, kWidth>(factors.constant + tile.channel);
    means = ChannelValues<C, kWidth>(mean + tile.channel);
  }
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kBackwardRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    const UpstreamRows<T, kWidth, count()> g(dy, y, first, stride);
    RowPacks<T, kWidth, count()> data;
    if (has_slope) data.load(x + first, stride);
    dx.template put<kWidth, count()>(first, stride, [&](int r, int i) {
      const C value = direct[i] * g.at(r, i);
      return has_slope ? value + (slope[i] * (data.at(r, i) - means[i]) + constant[i]) : value;
    });
    dresidual.template put<kWidth, count()>(first, stride, [&](int r, int i) { return g.at(r, i); });
  });
}

/// The arguments of all backward functions.
struct BackwardArguments {
  ConstView dy, x, y, gamma, mean, spread;
  bool statistics_are_constants = false;  // true: spread is the running variance, otherwise inverse_std
  GradView dx, dresidual, dgamma, dbeta;
  BatchNormOptions options;

  std::int64_t channels() const { return x.shape[-1]; }
  std::int64_t rows() const { return x.numel() / channels(); }
  bool aligned() const {
    return is_aligned(dy.data) && is_aligned(x.data) && is_aligned(y.data) && is_aligned(mean.data) &&
           is_aligned(dx.data) && is_aligned(dresidual.data);
  }
};

/// The arguments with their element types, and device memory for the factors. Launches the kernels.
template <class T>
class Backward {
 public:
  Backward(CudaStream& stream, const BackwardArguments& arguments)
      : stream_(stream),
        a_(arguments),
        y_(a_.options.relu ? a_.y.as<T>() : nullptr),
        memory_(stream, 3 * static_cast<std::size_t>(a_.channels()) * sizeof(C)),
        rules_{a_.gamma.as<C>(),
               a_.spread.as<C>(),
               a_.statistics_are_constants,
               a_.options.epsilon,
               ChannelGradient<C>(a_.dgamma),
               ChannelGradient<C>(a_.dbeta),
               {}} {
    if (a_.dx.wanted()) rules_.factors.direct = memory_.as<C>();
    if (!dx_wants_sums()) return;
    rules_.factors.slope = rules_.factors.direct + a_.channels();
    rules_.factors.constant = rules_.factors.slope + a_.channels();
  }

  bool dx_wants_sums() const { return a_.dx.wanted() && !a_.statistics_are_constants; }

  /// Computes dgamma, dbeta and the factors from the sums over the rows, and stores the sums in `shard_sums`
  /// [1 + 2C] if it is not null.
  void put_channel_gradients(double* shard_sums = nullptr) const {
    const bool wants_sums =
        a_.dgamma.wanted() || a_.dbeta.wanted() || dx_wants_sums() || shard_sums != nullptr;
    if (a_.rows() == 0 || !wants_sums) {
      if (wants_sums || a_.dx.wanted()) put_channel_gradients(0, nullptr, shard_sums);
      return;
    }
    choose_width<T>(a_.channels(), [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, kReductionBlocks);
      const Scratch partials(stream_, partial_values(tiling) * sizeof(C));
      launch(stream_, tiling.blocks(), kChannelBlock, sizeof(RowScratch<C, width()>),
             batch_norm_gradient_sums_kernel<width(), T>, tiling, a_.aligned(), a_.dy.as<T>(), a_.x.as<T>(),
             y_, a_.mean.as<C>(), partials.as<C>());
      put_channel_gradients(tiling.row_blocks, partials.as<C>(), shard_sums);
    });
  }
  /// Computes the factors from the sums [1 + 2C] over all shards.
  void put_factors(const double* sums) const {
    launch(stream_, blocks_for(a_.channels(), kChannelBlock), kChannelBlock, 0,
           sync_batch_norm_factors_kernel<C>, a_.channels(), sums, rules_);
  }
  /// Computes dx and dresidual from the factors.
  void put_data_gradients() const {
    if (a_.rows() == 0 || !(a_.dx.wanted() || a_.dresidual.wanted())) return;
    const auto run = [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, kMapBlocks);
      launch(stream_, tiling.blocks(), kChannelBlock, 0, batch_norm_data_gradients_kernel<width(), T>, tiling,
             a_.dy.as<T>(), a_.x.as<T>(), y_, a_.mean.as<C>(), rules_.factors, DataGradient<T>(a_.dx),
             DataGradient<T>(a_.dresidual));
    };
    choose_width<T>(a_.channels(), run, a_.aligned());
  }

 private:
  using C = compute_t<T>;

  void put_channel_gradients(int row_blocks, const C* partials, double* shard_sums) const {
    launch(stream_, blocks_for(a_.channels(), kFinalLanes), kChannelBlock, sizeof(FinalScratch),
           batch_norm_gradients_kernel<C>, a_.rows(), a_.channels(), row_blocks, partials, rules_,
           shard_sums);
  }

  CudaStream& stream_;
  const BackwardArguments& a_;
  const T* y_;
  Scratch memory_;
  GradientRules<C> rules_;
};

/// Calls f(backward) for the type of x.
template <class F>
void with_backward(CudaStream& stream, const BackwardArguments& arguments, const F& f) {
  if (arguments.channels() == 0) return;
  dispatch(kGpuTypes, arguments.x.dtype, [&](auto zero) { f(Backward<decltype(zero)>(stream, arguments)); });
}

}  // namespace

void batch_norm_backward(CudaStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                         ConstView mean, ConstView inverse_std, GradView dx, GradView dresidual,
                         GradView dgamma, GradView dbeta, BatchNormOptions options) {
  with_backward(stream, {dy, x, y, gamma, mean, inverse_std, false, dx, dresidual, dgamma, dbeta, options},
                [](const auto& backward) {
                  backward.put_channel_gradients();
                  backward.put_data_gradients();
                });
}

void sync_batch_norm_backward_reduce(CudaStream& stream, ConstView dy, ConstView x, ConstView y,
                                     ConstView mean, ConstView inverse_std, View sums, GradView dgamma,
                                     GradView dbeta, BatchNormOptions options) {
  with_backward(stream, {dy, x, y, {}, mean, inverse_std, false, {}, {}, dgamma, dbeta, options},
                [&](const auto& backward) { backward.put_channel_gradients(sums.as<double>()); });
}

void sync_batch_norm_backward_elemt(CudaStream& stream, ConstView dy, ConstView x, ConstView y,
                                    ConstView gamma, ConstView mean, ConstView inverse_std, ConstView sums,
                                    GradView dx, GradView dresidual, BatchNormOptions options) {
  with_backward(stream, {dy, x, y, gamma, mean, inverse_std, false, dx, dresidual, {}, {}, options},
                [&](const auto& backward) {
                  if (dx.wanted()) backward.put_factors(sums.as<double>());
                  backward.put_data_gradients();
                });
}

void batch_norm_inference_backward(CudaStream& stream, ConstView dy, ConstView x, ConstView y,
                                   ConstView gamma, ConstView running_mean, ConstView running_var,
                                   GradView dx, GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options) {
  with_backward(stream,
                {dy, x, y, gamma, running_mean, running_var, true, dx, dresidual, dgamma, dbeta, options},
                [](const auto& backward) {
                  backward.put_channel_gradients();
                  backward.put_data_gradients();
                });
}

}  // namespace convoy::kernels
