// kernels/batchnorm.h on the GPU: the backward functions. They read dy and x (and y, if the derivative of the
// activation does not follow from x) to sum g and g (x - mean) over the rows of each channel. The last block computes
// the gradients of the parameters from these sums. Then dx and dresidual are computed from the arrays.
#include "convoy/kernels/batchnorm.h"

#include <cmath>

#include "convoy/kernels/cuda/normalization/normalized.h"
#include "convoy/kernels/cuda/primitives/channel_sums.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

using namespace cuda;

/// The coefficients [C] of dx = direct g + (slope (x - mean) + constant). If the statistics are constants,
/// slope and constant are null and dx = direct g.
template <class C>
struct ChannelFactors {
  C *direct, *slope, *constant;
};

/// What is computed from the two sums of a channel, and from what else.
template <class C>
struct GradientRules {
  const C *gamma, *spread;  // spread: inverse_std, or the running variance
  bool spread_is_var;
  double epsilon;
  ChannelGradient<C> dgamma, dbeta;
  ChannelFactors<C> factors;  // direct is null if dx is unwanted
  double* shard_sums;         // n and both sums, [1 + 2C]; or null

  __device__ double inverse_std_of(std::int64_t c) const {
    const double given = static_cast<double>(spread[c]);
    return spread_is_var ? 1 / std::sqrt(given + epsilon) : given;
  }
  /// Stores all results for channel c of n rows. Loads everything before it stores anything, so that the
  /// latencies of the loads overlap.
  __device__ void put(std::int64_t c, std::int64_t channels, double n, double sum, double dot) const {
    const double inverse_std = inverse_std_of(c), scale = scale_of(c);
    const double old_dgamma = dgamma.before(c), old_dbeta = dbeta.before(c);
    dgamma.put(c, old_dgamma, dot * inverse_std);
    dbeta.put(c, old_dbeta, sum);
    put_factors(c, n, sum, dot, inverse_std, scale);
    if (shard_sums == nullptr) return;
    if (c == 0) shard_sums[0] = n;
    shard_sums[1 + c] = sum;
    shard_sums[1 + channels + c] = dot;
  }
  /// Stores the factors alone.
  __device__ void put_factors(std::int64_t c, double n, double sum, double dot) const {
    put_factors(c, n, sum, dot, inverse_std_of(c), scale_of(c));
  }

 private:
  __device__ double scale_of(std::int64_t c) const {
    return factors.direct != nullptr ? static_cast<double>(gamma[c]) : 0;
  }
  __device__ void put_factors(std::int64_t c, double n, double sum, double dot, double inverse_std,
                              double scale) const {
    if (factors.direct == nullptr) return;
    const double direct = scale * inverse_std;
    factors.direct[c] = static_cast<C>(direct);
    if (factors.slope == nullptr) return;
    factors.slope[c] = static_cast<C>(-direct * inverse_std * inverse_std * dot / n);
    factors.constant[c] = static_cast<C>(-direct * sum / n);
  }
};

/// How a kernel obtains g, the gradient of the activation's input, from dy.
enum class Derivative : std::uint8_t {
  one,         // there is no activation: g = dy
  relu_of_y,   // g = 0 where the result y, which is read, is 0 or less; else dy
  relu_again,  // the same, but y is computed again from x, with the same rounding
  gelu_again,  // g = dy times the derivative of GELU, whose argument is computed again from x
};

/// Returns whether the kernel computes the activation's argument from x and the coefficients.
constexpr bool computes_again(Derivative derivative) {
  return derivative == Derivative::relu_again || derivative == Derivative::gelu_again;
}

/// The arrays from which g is computed.
template <class T>
struct Upstream {
  const T *dy, *y;                         // y: for Derivative::relu_of_y
  const compute_t<T>*mean, *coefficients;  // coefficients [2, C]: factor and offset, if computes_again()
};

/// Computes g for the rows and channels of a thread.
template <Derivative kDerivative, int kWidth, class T>
class UpstreamRows {
 public:
  using C = compute_t<T>;
  ChannelValues<C, kWidth> means;  // for the kernel too

  __device__ UpstreamRows(const Upstream<T>& from, const ChannelTiling& tiling, const ThreadTile& tile,
                          bool is_aligned)
      : from_(from), stride_(tile.row_stride * tiling.channels), is_aligned_(is_aligned) {
    if (!tile.has_channels) return;
    means = ChannelValues<C, kWidth>(from.mean + tile.channel, is_aligned);
    if constexpr (computes_again(kDerivative)) {
      factors_ = ChannelValues<C, kWidth>(from.coefficients + tile.channel, is_aligned);
      offsets_ = ChannelValues<C, kWidth>(from.coefficients + tiling.channels + tile.channel, is_aligned);
    }
  }

  /// Returns g for kRows rows from index `first` on, and loads the same rows of x if reads_x.
  template <int kRows>
  __device__ RowPacks<T, kWidth, kRows> load(std::int64_t first, const T* x, bool reads_x,
                                             RowPacks<T, kWidth, kRows>& data) const {
    // `u` is the result of the ReLU if it is read, else the argument of the activation: it has the same sign.
    RowPacks<T, kWidth, kRows> g, u;
    g.load(from_.dy + first, stride_, is_aligned_);
    if constexpr (kDerivative == Derivative::relu_of_y) u.load(from_.y + first, stride_, is_aligned_);
    if (reads_x || computes_again(kDerivative)) data.load(x + first, stride_, is_aligned_);
    if constexpr (kDerivative != Derivative::one) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          if constexpr (computes_again(kDerivative))
            u.packs[r].values[i] = narrow<T>(normalized(data.at(r, i), means[i], factors_[i], offsets_[i]));
          if constexpr (kDerivative == Derivative::gelu_again) {
            g.packs[r].values[i] = narrow<T>(g.at(r, i) * gelu_derivative(u.packs[r].values[i]));
          } else if (u.at(r, i) <= C{0}) {
            g.packs[r].values[i] = T{};
          }
        }
      }
    }
    return g;
  }

 private:
  const Upstream<T>& from_;
  std::int64_t stride_;
  bool is_aligned_;
  ChannelValues<C, kWidth> factors_, offsets_;
};

/// Rows in flight: 128 bytes per thread of two arrays, or 96 of three, for which there are fewer registers.
template <Derivative kDerivative>
inline constexpr int kSumRows =
    kDerivative == Derivative::relu_of_y || kDerivative == Derivative::gelu_again ? 2 : 4;

// Reads dy, x, and y if the derivative is that of y; writes partials [row_blocks, 2, C]: the sums of g and of g (x -
// mean). Writes g too if `stored` is not null. The last block of each tile puts the results of its channels.
template <Derivative kDerivative, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kReductionBlocksOfSm)
    batch_norm_gradient_sums_kernel(ChannelTiling tiling, bool is_aligned, Upstream<T> upstream, const T* x,
                                    T* stored, compute_t<T>* partials, unsigned* tickets,
                                    GradientRules<compute_t<T>> rules) {
  using C = compute_t<T>;
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  const UpstreamRows<kDerivative, kWidth, T> rows(upstream, tiling, tile, is_aligned);
  ChannelPairs<C, kWidth> sums;
  for_row_groups<kSumRows<kDerivative>>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    RowPacks<T, kWidth, count()> data;
    const auto g = rows.template load<count()>(first, x, true, data);
    if (stored != nullptr) g.store(stored + first, tile.row_stride * tiling.channels, is_aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
#pragma unroll
      for (int r = 0; r < count(); ++r) {
        sums.first[i] += g.at(r, i);
        sums.second[i] = std::fma(g.at(r, i), data.at(r, i) - rows.means[i], sums.second[i]);
      }
    }
  });
  auto& scratch = shared_memory<TileScratch<C, kWidth>>();
  reduce_rows(scratch.block, tiling.lanes, sums, AddPairs{});
  sum_tile(scratch, tiling, tile, sums, partials, tickets, SumOfPartials{},
           [&](std::int64_t c, double sum, double dot) {
             rules.put(c, tiling.channels, static_cast<double>(tiling.rows), sum, dot);
           });
}

// Writes the factors. Reads the sums [1 + 2C] over all shards; if it is null, dx does not need them. One
// thread per channel.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_gradient_factors_kernel(std::int64_t channels, const double* sums, GradientRules<C> rules) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c >= channels) return;
  if (sums == nullptr) return rules.put_factors(c, 0, 0, 0);
  rules.put_factors(c, sums[0], sums[1 + c], sums[1 + channels + c]);
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

constexpr int kDataRows = 2;  // rows in flight in the second pass, of up to three arrays: 96 bytes per thread
/// Blocks of the second pass for whose registers an SM must have space. The derivative takes more registers.
template <Derivative kDerivative>
inline constexpr int kDataBlocksOfSm = kDerivative == Derivative::one ? 3 : 2;

// Reads dy, y if the derivative is that of y, and x if the derivative or dx needs it; writes dx and dresidual.
// These may be the same array, since dx is stored before dresidual is loaded.
template <Derivative kDerivative, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kDataBlocksOfSm<kDerivative>)
    batch_norm_data_gradients_kernel(ChannelTiling tiling, Upstream<T> upstream, const T* x,
                                     ChannelFactors<compute_t<T>> factors, DataGradient<T> dx,
                                     DataGradient<T> dresidual) {
  using C = compute_t<T>;
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  if (!tile.has_channels) return;
  const bool has_slope = factors.slope != nullptr;
  const UpstreamRows<kDerivative, kWidth, T> rows(upstream, tiling, tile, /*is_aligned=*/true);
  ChannelValues<C, kWidth> direct, slope, constant;
  if (dx.values != nullptr) direct = ChannelValues<C, kWidth>(factors.direct + tile.channel);
  if (has_slope) {
    slope = ChannelValues<C, kWidth>(factors.slope + tile.channel);
    constant = ChannelValues<C, kWidth>(factors.constant + tile.channel);
  }
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kDataRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    RowPacks<T, kWidth, count()> data;
    const auto g = rows.template load<count()>(first, x, has_slope, data);
    dx.template put<kWidth, count()>(first, stride, [&](int r, int i) {
      if (!has_slope) return direct[i] * g.at(r, i);
      // Operations with one rounding, so that the ways to obtain the mask give the same bits.
      return std::fma(direct[i], g.at(r, i), std::fma(slope[i], data.at(r, i) - rows.means[i], constant[i]));
    });
    dresidual.template put<kWidth, count()>(first, stride, [&](int r, int i) { return g.at(r, i); });
  });
}

/// Calls f(std::integral_constant<Derivative, derivative>).
template <class F>
void choose_derivative(Derivative derivative, const F& f) {
  switch (derivative) {
    case Derivative::one: return f(std::integral_constant<Derivative, Derivative::one>{});
    case Derivative::relu_of_y: return f(std::integral_constant<Derivative, Derivative::relu_of_y>{});
    case Derivative::relu_again: return f(std::integral_constant<Derivative, Derivative::relu_again>{});
    case Derivative::gelu_again: return f(std::integral_constant<Derivative, Derivative::gelu_again>{});
  }
}

/// The arguments of all backward functions. If `saved` is null, the statistics are those of `norm`, which are
/// constants.
struct BackwardArguments {
  const BatchNorm& norm;
  const BackwardArrays& arrays;
  const SavedStatistics* saved;
  BatchNormGradients gradients;
  double* shard_sums = nullptr;  // [1 + 2C]

  std::int64_t channels() const { return arrays.x.shape[-1]; }
  std::int64_t rows() const { return arrays.x.numel() / channels(); }
  ConstView mean() const { return saved != nullptr ? saved->mean : norm.running_mean; }
  ConstView coefficients() const { return saved != nullptr ? ConstView(saved->coefficients) : ConstView(); }
  bool aligned() const {
    const auto are_aligned = [](auto&&... views) { return (is_aligned(views.data) && ...); };
    return are_aligned(arrays.dy, arrays.x, arrays.y, mean(), coefficients(), gradients.x,
                       gradients.residual);
  }
  Derivative derivative() const {
    if (norm.options.activation == FusedActivation::none) return Derivative::one;
    if (norm.options.activation == FusedActivation::gelu) return Derivative::gelu_again;
    return coefficients().data != nullptr ? Derivative::relu_again : Derivative::relu_of_y;
  }
};

/// The arguments with their element types, and device memory for the factors. Launches the kernels.
template <class T>
class Backward {
 public:
  Backward(CudaStream& stream, const BackwardArguments& arguments)
      : stream_(stream),
        a_(arguments),
        memory_(stream, 3 * static_cast<std::size_t>(a_.channels()) * sizeof(C)),
        rules_{a_.norm.gamma.as<C>(),
               (a_.saved != nullptr ? a_.saved->inverse_std : a_.norm.running_var).template as<C>(),
               a_.saved == nullptr,
               a_.norm.options.epsilon,
               ChannelGradient<C>(a_.gradients.gamma),
               ChannelGradient<C>(a_.gradients.beta),
               {},
               a_.shard_sums} {
    if (a_.gradients.x.wanted()) rules_.factors.direct = memory_.as<C>();
    if (!dx_wants_sums()) return;
    rules_.factors.slope = rules_.factors.direct + a_.channels();
    rules_.factors.constant = rules_.factors.slope + a_.channels();
  }

  /// Computes dgamma, dbeta, the factors and the shard's sums. Returns the array in which it has stored g for
  /// put_data_gradients(); null if there is none.
  T* put_channel_gradients() const {
    if (a_.rows() == 0) {
      put_zeros();
      return nullptr;
    }
    if (!a_.gradients.gamma.wanted() && !a_.gradients.beta.wanted() && !dx_wants_sums() &&
        a_.shard_sums == nullptr) {
      if (a_.gradients.x.wanted()) put_factors(nullptr);
      return nullptr;
    }
    T* const stored = place_of_g();
    choose_width<T>(a_.channels(), [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, reduction(stream_));
      const Scratch partials(stream_, partial_values(tiling) * sizeof(C));
      choose_derivative(a_.derivative(), [&](auto derivative) {
        launch(LaunchStart::early, stream_, tiling.blocks(), kChannelBlock, sizeof(TileScratch<C, width()>),
               batch_norm_gradient_sums_kernel<derivative(), width(), T>, tiling, a_.aligned(), upstream(),
               a_.arrays.x.as<T>(), stored, partials.as<C>(), stream_.tickets(), rules_);
      });
    });
    return stored;
  }
  /// Computes the factors from the sums [1 + 2C] over all shards. Null: dx does not need them.
  void put_factors(const double* sums) const {
    launch(stream_, blocks_for(a_.channels(), kChannelBlock), kChannelBlock, 0,
           batch_norm_gradient_factors_kernel<C>, a_.channels(), sums, rules_);
  }
  /// Computes dx from the factors, and dresidual. `stored` is an array that has g, such as dx or dresidual, or null.
  void put_data_gradients(const T* stored = nullptr) const {
    Upstream<T> from = upstream();
    if (stored != nullptr) from.dy = stored;
    const GradView dresidual = stored == a_.gradients.residual.as<T>() ? GradView() : a_.gradients.residual;
    if (a_.rows() == 0 || !(a_.gradients.x.wanted() || dresidual.wanted())) return;
    const auto run = [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, kElementwise);
      choose_derivative(stored != nullptr ? Derivative::one : a_.derivative(), [&](auto derivative) {
        launch(LaunchStart::early, stream_, tiling.blocks(), kChannelBlock, 0,
               batch_norm_data_gradients_kernel<derivative(), width(), T>, tiling, from, a_.arrays.x.as<T>(),
               rules_.factors, DataGradient<T>(a_.gradients.x), DataGradient<T>(dresidual));
      });
    };
    choose_width<T>(a_.channels(), run, a_.aligned());
  }

 private:
  using C = compute_t<T>;

  /// Returns the array in which to store g, if it costs less to store it than to compute it again: where y would be
  /// read again, and for a GELU, which takes 20 instructions. Then the second pass reads it in place of dy and y.
  T* place_of_g() const {
    const auto is_free = [](const GradView& to) { return to.wanted() && to.mode == GradMode::overwrite; };
    const Derivative derivative = a_.derivative();
    if (derivative != Derivative::relu_of_y && derivative != Derivative::gelu_again) return nullptr;
    if (is_free(a_.gradients.residual)) return a_.gradients.residual.as<T>();
    return derivative == Derivative::gelu_again && is_free(a_.gradients.x) ? a_.gradients.x.as<T>() : nullptr;
  }
  bool dx_wants_sums() const { return a_.gradients.x.wanted() && a_.saved != nullptr; }
  Upstream<T> upstream() const {
    const ConstView mean = a_.mean(), coefficients = a_.coefficients();
    return {a_.arrays.dy.as<T>(), a_.arrays.y.as<T>(), mean.as<C>(), coefficients.as<C>()};
  }
  void put_zeros() const {
    for (const GradView& gradient : {a_.gradients.gamma, a_.gradients.beta})
      if (gradient.wanted() && gradient.mode == GradMode::overwrite) fill(stream_, 0, gradient);
    if (a_.shard_sums != nullptr) fill(stream_, 0, {a_.shard_sums, {1 + 2 * a_.channels()}, DType::f64});
  }

  CudaStream& stream_;
  const BackwardArguments& a_;
  Scratch memory_;
  GradientRules<C> rules_;
};

/// Calls f(backward) for the type of x.
template <class F>
void with_backward(CudaStream& stream, const BackwardArguments& a, const F& f) {
  if (a.channels() == 0) return;
  dispatch(kGpuTypes, a.arrays.x.dtype, [&](auto zero) { f(Backward<decltype(zero)>(stream, a)); });
}

}  // namespace

void batch_norm_backward(CudaStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                         const SavedStatistics& saved, const BatchNormGradients& gradients) {
  with_backward(stream, {norm, arrays, &saved, gradients},
                [](const auto& backward) { backward.put_data_gradients(backward.put_channel_gradients()); });
}

void sync_batch_norm_sums(CudaStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                          const SavedStatistics& saved, View sums, const BatchNormGradients& gradients) {
  with_backward(stream, {norm, arrays, &saved, {{}, {}, gradients.gamma, gradients.beta}, sums.as<double>()},
                [](const auto& backward) { backward.put_channel_gradients(); });
}

void sync_batch_norm_backward(CudaStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                              const SavedStatistics& saved, ConstView sums,
                              const BatchNormGradients& gradients) {
  with_backward(stream, {norm, arrays, &saved, {gradients.x, gradients.residual, {}, {}}},
                [&](const auto& backward) {
                  if (gradients.x.wanted()) backward.put_factors(sums.as<double>());
                  backward.put_data_gradients();
                });
}

void batch_norm_inference_backward(CudaStream& stream, const BatchNorm& norm, const BackwardArrays& arrays,
                                   const BatchNormGradients& gradients) {
  with_backward(stream, {norm, arrays, nullptr, gradients},
                [](const auto& backward) { backward.put_data_gradients(backward.put_channel_gradients()); });
}

}  // namespace convoy::kernels
