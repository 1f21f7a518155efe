// kernels/batchnorm.h on the GPU: the backward functions. They read dy and x (and y, if the derivative of the
// activation does not follow from x) to sum g and g (x - mean) over the rows of each channel. Where clusters of blocks can
// keep g and x in shared memory, the same launch computes all gradients. Otherwise its last block computes the gradients
// of the parameters, and another launch reads the arrays again for dx and dresidual.
#include "convoy/kernels/batchnorm.h"

#include "convoy/kernels/cuda/normalization/normalized.h"
#include "convoy/kernels/cuda/primitives/channel_clusters.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/launch.h"
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

  /// Returns the factors of channel c of n rows, and if `stores` stores all results. Loads everything before it stores
  /// anything, so that the latencies of the loads overlap.
  __device__ ChannelResults<C> put(std::int64_t c, std::int64_t channels, double n, double sum, double dot,
                                   bool stores = true) const {
    const double given = static_cast<double>(spread[c]);
    const double inverse_std = spread_is_var ? 1 / std::sqrt(given + epsilon) : given;
    const double direct = gamma != nullptr ? static_cast<double>(gamma[c]) * inverse_std : 0;
    const ChannelResults<C> result{{static_cast<C>(direct),
                                    static_cast<C>(-direct * inverse_std * inverse_std * dot / n),
                                    static_cast<C>(-direct * sum / n)}};
    if (!stores) return result;
    const double old_dgamma = dgamma.before(c), old_dbeta = dbeta.before(c);
    dgamma.put(c, old_dgamma, dot * inverse_std);
    dbeta.put(c, old_dbeta, sum);
    if (factors.direct != nullptr) factors.direct[c] = result.values[0];
    if (factors.slope != nullptr) {
      factors.slope[c] = result.values[1];
      factors.constant[c] = result.values[2];
    }
    if (shard_sums == nullptr) return result;
    if (c == 0) shard_sums[0] = n;
    shard_sums[1 + c] = sum;
    shard_sums[1 + channels + c] = dot;
    return result;
  }
};

/// Returns whether storing g may cost less than computing it again: from y, or for a GELU, which takes 20 instructions.
constexpr bool may_store(Derivative derivative) {
  return derivative == Derivative::relu_of_y || derivative == Derivative::gelu_again;
}

/// Rows in flight: 128 bytes per thread of two arrays, or 96 of three, for which there are fewer registers.
template <Derivative kDerivative>
inline constexpr int kSumRows = may_store(kDerivative) ? 2 : 4;

/// Computes the sums of g and of g (x - mean) over a block's rows, and calls keep(count, g, x) for the rows that a thread
/// loads together.
template <Derivative kDerivative, int kWidth, class T, class Keep>
__device__ ChannelPairs<compute_t<T>, kWidth> block_gradient_sums(
    RowScratch<compute_t<T>, kWidth>& scratch, const ChannelTiling& tiling, const ThreadTile& tile,
    const UpstreamRows<kDerivative, kWidth, T>& rows, const T* x, const Keep& keep) {
  ChannelPairs<compute_t<T>, kWidth> sums;
  for_row_groups<kSumRows<kDerivative>>(tile, [&](auto count, std::int64_t row) {
    RowPacks<T, kWidth, count()> data;
    const auto g = rows.template load<count()>(row * tiling.channels + tile.channel, x, true, data);
    keep(count, row, g, data);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
#pragma unroll
      for (int r = 0; r < count(); ++r) {
        sums.first[i] += g.at(r, i);
        sums.second[i] = std::fma(g.at(r, i), data.at(r, i) - rows.means[i], sums.second[i]);
      }
    }
  });
  reduce_rows(scratch, tiling.lanes, sums, AddPairs{});
  return sums;
}

// Reads dy, x, and y if the derivative is that of y; writes partials [row_blocks, 2, C]: the sums of g and of g (x -
// mean). Writes g too if `stored` is not null. The last block of each tile puts the results of its channels.
template <Derivative kDerivative, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kReductionBlocksOfSm)
    batch_norm_gradient_sums_kernel(ChannelTiling tiling, bool is_aligned, Upstream<T> upstream, const T* x,
                                    T* stored, compute_t<T>* partials, unsigned* tickets,
                                    GradientRules<compute_t<T>> rules) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  const UpstreamRows<kDerivative, kWidth, T> rows(upstream, tiling, tile, is_aligned);
  auto& scratch = shared_memory<TileScratch<compute_t<T>, kWidth>>();
  const auto store = [&](auto, std::int64_t row, const auto& g, const auto&) {
    if (may_store(kDerivative) && stored != nullptr)
      g.store(stored + row * tiling.channels + tile.channel, rows.stride, is_aligned);
  };
  const auto sums = block_gradient_sums(scratch.block, tiling, tile, rows, x, store);
  sum_tile(scratch, tiling, tile, partials, tickets, sums, SumOfPartials{},
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
  const bool has_sums = sums != nullptr;
  rules.put(c, channels, has_sums ? sums[0] : 0, has_sums ? sums[1 + c] : 0,
            has_sums ? sums[1 + channels + c] : 0);
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
  __device__ void put(std::int64_t first, std::int64_t stride, bool is_aligned, const F& value_at) const {
    if (values == nullptr) return;
    RowPacks<T, kWidth, kRows> before;
    if (adds) before.load(values + first, stride, is_aligned);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Pack<T, kWidth> out;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out.values[i] = narrow<T>(adds ? before.at(r, i) + value_at(r, i) : value_at(r, i));
      store_pack(values + first + r * stride, out, is_aligned);
    }
  }
};

constexpr int kDataRows = 2;  // rows in flight in the second pass, of up to three arrays: 96 bytes per thread
/// Blocks of the second pass for whose registers an SM must have space. The derivative takes more registers.
template <Derivative kDerivative>
inline constexpr int kDataBlocksOfSm = kDerivative == Derivative::one ? 3 : 2;

/// Writes dx and dresidual, which may be the same array, since dx is stored before dresidual is loaded. `count` rows that
/// begin at index `first` of them begin at place(count, first) of dy and x. Their factors begin at `c` of `factors`.
template <Derivative kDerivative, int kWidth, class T, class Place>
__device__ void put_rows(const ChannelTiling& tiling, const ThreadTile& tile,
                         const UpstreamRows<kDerivative, kWidth, T>& rows, const T* x, Place&& place,
                         const ChannelFactors<compute_t<T>>& factors, std::int64_t c,
                         const DataGradient<T>& dx, const DataGradient<T>& dresidual,
                         bool is_aligned = true) {
  using C = compute_t<T>;
  const bool has_slope = factors.slope != nullptr;
  ChannelValues<C, kWidth> direct, slope, constant;
  if (dx.values != nullptr) direct = ChannelValues<C, kWidth>(factors.direct + c);
  if (has_slope) {
    slope = ChannelValues<C, kWidth>(factors.slope + c);
    constant = ChannelValues<C, kWidth>(factors.constant + c);
  }
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kDataRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    RowPacks<T, kWidth, count()> data;
    const auto g = rows.template load<count()>(place(count, first), x, has_slope, data);
    dx.template put<kWidth, count()>(first, stride, is_aligned, [&](int r, int i) {
      if (!has_slope) return direct[i] * g.at(r, i);
      // Operations with one rounding, so that the ways to obtain the mask give the same bits.
      return std::fma(direct[i], g.at(r, i), std::fma(slope[i], data.at(r, i) - rows.means[i], constant[i]));
    });
    dresidual.template put<kWidth, count()>(first, stride, is_aligned,
                                            [&](int r, int i) { return g.at(r, i); });
  });
}

// Reads dy, y if the derivative is that of y, and x if the derivative or dx needs it; writes dx and dresidual.
template <Derivative kDerivative, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kDataBlocksOfSm<kDerivative>)
    batch_norm_data_gradients_kernel(ChannelTiling tiling, Upstream<T> upstream, const T* x,
                                     ChannelFactors<compute_t<T>> factors, DataGradient<T> dx,
                                     DataGradient<T> dresidual) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  if (!tile.has_channels) return;
  const UpstreamRows<kDerivative, kWidth, T> rows(upstream, tiling, tile, /*is_aligned=*/true);
  const auto same_place = [](auto, std::int64_t first) { return first; };
  put_rows(tiling, tile, rows, x, same_place, factors, tile.channel, dx, dresidual);
}

// Reads dy, x, and y if the derivative is that of y; writes all gradients. Each cluster has a tile of channels.
template <Derivative kDerivative, int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kClusterBlocksOfSm)
    batch_norm_gradient_cluster_kernel(ChannelTiling tiling, bool is_aligned, Upstream<T> upstream,
                                       const T* x, GradientRules<compute_t<T>> rules, DataGradient<T> dx,
                                       DataGradient<T> dresidual) {
  allow_next_kernel();
  const ThreadTile tile(tiling, kWidth);
  wait_for_previous_kernel();
  auto& scratch = shared_memory<ClusterScratch<compute_t<T>, kWidth>>();
  T *const kept_g = scratch.template kept<T>(tiling, 0), *const kept_x = scratch.template kept<T>(tiling, 1);
  std::int64_t place = 0;
  const auto keep = [&](auto count, std::int64_t, const auto& g, const auto& data) {
    g.store(kept_g + place, scratch.kKeptStride);
    data.store(kept_x + place, scratch.kKeptStride);
    place += count() * scratch.kKeptStride;
  };
  const auto sums =
      block_gradient_sums(scratch.block, tiling, tile,
                          UpstreamRows<kDerivative, kWidth, T>(upstream, tiling, tile, is_aligned), x, keep);
  sum_cluster(scratch, tiling, tile, sums, SumOfPartials{}, [&](std::int64_t c, double sum, double dot) {
    return rules.put(c, tiling.channels, static_cast<double>(tiling.rows), sum, dot, tile.row_block == 0);
  });
  if (tile.has_channels) {
    upstream.dy = kept_g;
    UpstreamRows<Derivative::one, kWidth, T> rows(upstream, tiling, tile, is_aligned);
    rows.stride = scratch.kKeptStride;
    place = 0;
    const auto next = [&](auto count, std::int64_t) {
      place += count() * scratch.kKeptStride;
      return place - count() * scratch.kKeptStride;
    };
    put_rows(tiling, tile, rows, kept_x, next, {scratch.results[0], scratch.results[1], scratch.results[2]},
             tile.lane * kWidth, dx, dresidual, is_aligned);
  }
  wait_for_cluster();
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

  /// Computes all gradients in one launch, if clusters can keep g and x. Returns whether they can.
  bool put_in_clusters() const {
    if (a_.rows() == 0 || !wants_sums()) return false;
    GradientRules<C> rules = rules_;
    rules.factors = {};  // they stay in shared memory
    bool is_done = false;
    choose_derivative(a_.derivative(), [&](auto derivative) {
      is_done = launch_clusters<T>(stream_, a_.arrays.x.shape, /*arrays=*/2,
                                   batch_norm_gradient_cluster_kernel<derivative(), kVectorWidth<T>, T>,
                                   a_.aligned(), upstream(), a_.arrays.x.as<T>(), rules,
                                   DataGradient<T>(a_.gradients.x), DataGradient<T>(a_.gradients.residual));
    });
    return is_done;
  }
  /// Computes dgamma, dbeta, the factors and the shard's sums. Returns the array in which it has stored g for
  /// put_data_gradients(); null if there is none.
  T* put_channel_gradients() const {
    if (a_.rows() == 0) {
      put_zeros();
      return nullptr;
    }
    if (!wants_sums()) {
      if (a_.gradients.x.wanted()) put_factors(nullptr);
      return nullptr;
    }
    T* const stored = place_of_g();
    choose_width<T>(a_.channels(), [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, reduction(stream_));
      const Scratch partials(stream_, partial_values(tiling) * sizeof(C));
      choose_derivative(a_.derivative(), [&](auto derivative) {
        launch(LaunchStart::early, stream_, tiling.grid(), kChannelBlock, sizeof(TileScratch<C, width()>),
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
        launch(LaunchStart::early, stream_, tiling.grid(), kChannelBlock, 0,
               batch_norm_data_gradients_kernel<derivative(), width(), T>, tiling, from, a_.arrays.x.as<T>(),
               rules_.factors, DataGradient<T>(a_.gradients.x), DataGradient<T>(dresidual));
      });
    };
    choose_width<T>(a_.channels(), run, a_.aligned());
  }

 private:
  using C = compute_t<T>;

  /// Returns the array in which to store g; null if there is none. The second pass reads it in place of dy and y.
  T* place_of_g() const {
    const auto is_free = [](const GradView& to) { return to.wanted() && to.mode == GradMode::overwrite; };
    if (!may_store(a_.derivative())) return nullptr;
    if (is_free(a_.gradients.residual)) return a_.gradients.residual.as<T>();
    return a_.derivative() == Derivative::gelu_again && is_free(a_.gradients.x) ? a_.gradients.x.as<T>()
                                                                                : nullptr;
  }
  bool wants_sums() const {
    return a_.gradients.gamma.wanted() || a_.gradients.beta.wanted() || dx_wants_sums() ||
           a_.shard_sums != nullptr;
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
  with_backward(stream, {norm, arrays, &saved, gradients}, [](const auto& backward) {
    if (!backward.put_in_clusters()) backward.put_data_gradients(backward.put_channel_gradients());
  });
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
