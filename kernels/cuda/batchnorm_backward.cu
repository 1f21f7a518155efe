// kernels/batchnorm.h on the GPU: backward. Reads dy, x (and y, where a ReLU asks for it) for two sums over
// the rows of each channel, combines those of all blocks, and reads all again for dx and dresidual.
#include <cmath>

#include "kernels/batchnorm.h"
#include "kernels/cuda/channel_tiles.h"

namespace convoy {
namespace {

using namespace cuda;

constexpr int kBackwardRows = 2;  // in flight, of up to three arrays: 96 bytes of each thread

/// g, the gradient of what the ReLU is applied to, from that of its result y. Without one, y is null.
template <class T, int kWidth, int kRows>
struct UpstreamRows {
  RowPacks<T, kWidth, kRows> dy, y;
  bool relu;

  __device__ UpstreamRows(const T* dy_from, const T* y_from, std::int64_t first, std::int64_t stride)
      : relu(y_from != nullptr) {
    dy.load(dy_from + first, stride);
    if (relu) y.load(y_from + first, stride);
  }
  __device__ compute_t<T> at(int r, int i) const {
    const compute_t<T> gradient = dy.at(r, i);
    if (relu) return y.at(r, i) > compute_t<T>{0} ? gradient : compute_t<T>{0};
    return gradient;
  }
};

// Reads dy, x, and y where it is not null; writes partials [row_blocks, 2, C]: the sums of g and of
// g (x - mean).
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_gradient_sums_kernel(ChannelTiling tiling, const T* dy, const T* x, const T* y,
                                    const compute_t<T>* mean, compute_t<T>* partials) {
  using C = compute_t<T>;
  const ChannelPlace place(tiling, kWidth);
  ChannelPairs<C, kWidth> sums;
  ChannelValues<C, kWidth> means;
  if (place.has_channels) means = ChannelValues<C, kWidth>(mean + place.channel);
  const std::int64_t stride = place.apart * tiling.channels;
  for_row_groups<kBackwardRows>(place, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + place.channel;
    const UpstreamRows<T, kWidth, count()> g(dy, y, first, stride);
    RowPacks<T, kWidth, count()> data;
    data.load(x + first, stride);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      C sum{0}, product{0};
#pragma unroll
      for (int r = 0; r < count(); ++r) {
        sum += g.at(r, i);
        product += g.at(r, i) * (data.at(r, i) - means[i]);
      }
      sums.first[i] += sum;
      sums.second[i] += product;
    }
  });
  reduce_rows(shared_memory<RowTree<C, kWidth>>(), tiling.lanes, sums, AddPairs{});
  store_partials(partials, tiling, place, sums);
}

/// A gradient [C] and its mode; null where unwanted.
template <class C>
struct ChannelGradient {
  C* values;
  bool adds;

  explicit ChannelGradient(const GradView& view) : values(view.as<C>()), adds(view.mode == Mode::add) {}
  __device__ void put(std::int64_t c, double value) const {
    if (values != nullptr) values[c] = static_cast<C>(adds ? static_cast<double>(values[c]) + value : value);
  }
};

/// dx = direct g + (slope (x - mean) + constant); slope and constant are null where the statistics are
/// constants, and then dx = direct g.
template <class C>
struct ChannelFactors {
  C *direct, *slope, *constant;
};

/// What the channels' thread needs beside the two sums.
template <class C>
struct GradientRules {
  const C *gamma, *spread;  // spread: inverse_std, or the running variance
  bool spread_is_var;
  double epsilon;
  ChannelGradient<C> dgamma, dbeta;
  ChannelFactors<C> factors;  // direct is null where dx is unwanted

  __device__ double inverse_std_of(std::int64_t c) const {
    const double given = static_cast<double>(spread[c]);
    return spread_is_var ? 1 / std::sqrt(given + epsilon) : given;
  }
  __device__ void put_gradients(std::int64_t c, double sum, double product) const {
    dgamma.put(c, product * inverse_std_of(c));
    dbeta.put(c, sum);
  }
  __device__ void put_factors(std::int64_t c, double n, double sum, double product) const {
    if (factors.direct == nullptr) return;
    const double inverse_std = inverse_std_of(c);
    const double direct = static_cast<double>(gamma[c]) * inverse_std;
    factors.direct[c] = static_cast<C>(direct);
    if (factors.slope == nullptr) return;
    factors.slope[c] = static_cast<C>(-direct * inverse_std * inverse_std * product / n);
    factors.constant[c] = static_cast<C>(-direct * sum / n);
  }
};

// A thread for each channel in the end. Reads partials (there may be none), writes what is [C], and the sums
// [1 + 2C] where they are not null.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_gradients_kernel(std::int64_t rows, std::int64_t channels, int row_blocks, const C* partials,
                                GradientRules<C> rules, double* part_sums) {
  const auto as_they_are = [](int /*block*/, double sum, double product) {
    return ChannelPairs<double, 1>{{sum}, {product}};
  };
  const ChannelPairs<double, 1> sums =
      sum_partials(shared_memory<FinalTree>(), partials, row_blocks, channels, as_they_are);
  if (!is_final_thread(channels)) return;
  const std::int64_t c = final_channel();
  const double n = static_cast<double>(rows), sum = sums.first[0], product = sums.second[0];
  rules.put_gradients(c, sum, product);
  rules.put_factors(c, n, sum, product);
  if (part_sums == nullptr) return;
  if (c == 0) part_sums[0] = n;
  part_sums[1 + c] = sum;
  part_sums[1 + channels + c] = product;
}

// A thread for each channel. Reads the sums [1 + 2C] of all parts, writes the factors.
template <class C>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_part_factors_kernel(std::int64_t channels, const double* sums, GradientRules<C> rules) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kChannelBlock + threadIdx.x;
  if (c < channels) rules.put_factors(c, sums[0], sums[1 + c], sums[1 + channels + c]);
}

/// A gradient of x's shape and its mode; null where unwanted.
template <class T>
struct DataGradient {
  T* values;
  bool adds;

  explicit DataGradient(const GradView& view) : values(view.as<T>()), adds(view.mode == Mode::add) {}

  /// of(r, i): the contribution of element i of row r.
  template <int kWidth, int kRows, class F>
  __device__ void put(std::int64_t first, std::int64_t stride, const F& of) const {
    if (values == nullptr) return;
    RowPacks<T, kWidth, kRows> before;
    if (adds) before.load(values + first, stride);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Pack<T, kWidth> out;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out.values[i] = narrow<T>(adds ? before.at(r, i) + of(r, i) : of(r, i));
      store_pack(values + first + r * stride, out);
    }
  }
};

// Reads dy, y where it is not null, and x where the slope is not; writes dx and dresidual, which may be one
// array: dx is stored before dresidual is loaded.
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock)
    batch_norm_data_gradients_kernel(ChannelTiling tiling, const T* dy, const T* x, const T* y,
                                     const compute_t<T>* mean, ChannelFactors<compute_t<T>> factors,
                                     DataGradient<T> dx, DataGradient<T> dresidual) {
  using C = compute_t<T>;
  const ChannelPlace place(tiling, kWidth);
  if (!place.has_channels) return;
  const bool of_statistics = factors.slope != nullptr;
  ChannelValues<C, kWidth> direct, slope, constant, means;
  if (dx.values != nullptr) direct = ChannelValues<C, kWidth>(factors.direct + place.channel);
  if (of_statistics) {
    slope = ChannelValues<C, kWidth>(factors.slope + place.channel);
    constant = ChannelValues<C, kWidth>(factors.constant + place.channel);
    means = ChannelValues<C, kWidth>(mean + place.channel);
  }
  const std::int64_t stride = place.apart * tiling.channels;
  for_row_groups<kBackwardRows>(place, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + place.channel;
    const UpstreamRows<T, kWidth, count()> g(dy, y, first, stride);
    RowPacks<T, kWidth, count()> data;
    if (of_statistics) data.load(x + first, stride);
    dx.template put<kWidth, count()>(first, stride, [&](int r, int i) {
      const C value = direct[i] * g.at(r, i);
      return of_statistics ? value + (slope[i] * (data.at(r, i) - means[i]) + constant[i]) : value;
    });
    dresidual.template put<kWidth, count()>(first, stride, [&](int r, int i) { return g.at(r, i); });
  });
}

/// What the backwards share, and in what they differ.
struct BackwardArguments {
  ConstView dy, x, y, gamma, mean, spread;
  bool statistics_are_constants = false;  // spread: the running variance, else inverse_std
  GradView dx, dresidual, dgamma, dbeta;
  BatchNormOptions options;

  std::int64_t channels() const { return x.shape[-1]; }
  std::int64_t rows() const { return x.numel() / channels(); }
  bool aligned() const {
    return is_aligned(dy.data) && is_aligned(x.data) && is_aligned(y.data) && is_aligned(mean.data) &&
           is_aligned(dx.data) && is_aligned(dresidual.data);
  }
};

/// The arguments in the types of a kernel, with memory for its factors.
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

  /// dgamma, dbeta, the factors, and where it is not null `part_sums` [1 + 2C], from the sums over the rows.
  void put_channel_gradients(double* part_sums = nullptr) const {
    const bool wants_sums =
        a_.dgamma.wanted() || a_.dbeta.wanted() || dx_wants_sums() || part_sums != nullptr;
    if (a_.rows() == 0 || !wants_sums) {
      if (wants_sums || a_.dx.wanted()) put_channel_gradients(0, nullptr, part_sums);
      return;
    }
    choose_width<T>(a_.channels(), a_.aligned(), [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, kReductionBlocks);
      const Scratch partials(stream_, partial_values(tiling) * sizeof(C));
      launch(stream_, tiling.blocks(), kChannelBlock, sizeof(RowTree<C, width()>),
             batch_norm_gradient_sums_kernel<width(), T>, tiling, a_.dy.as<T>(), a_.x.as<T>(), y_,
             a_.mean.as<C>(), partials.as<C>());
      put_channel_gradients(tiling.row_blocks, partials.as<C>(), part_sums);
    });
  }
  /// The factors from the sums [1 + 2C] of all parts.
  void put_factors(const double* sums) const {
    launch(stream_, blocks_for(a_.channels(), kChannelBlock), kChannelBlock, 0,
           batch_norm_part_factors_kernel<C>, a_.channels(), sums, rules_);
  }
  /// dx and dresidual from the factors.
  void put_data_gradients() const {
    if (a_.rows() == 0 || !(a_.dx.wanted() || a_.dresidual.wanted())) return;
    choose_width<T>(a_.channels(), a_.aligned(), [&](auto width) {
      const ChannelTiling tiling = tile_channels(a_.rows(), a_.channels(), width, kMapBlocks);
      launch(stream_, tiling.blocks(), kChannelBlock, 0, batch_norm_data_gradients_kernel<width(), T>, tiling,
             a_.dy.as<T>(), a_.x.as<T>(), y_, a_.mean.as<C>(), rules_.factors, DataGradient<T>(a_.dx),
             DataGradient<T>(a_.dresidual));
    });
  }

 private:
  using C = compute_t<T>;

  void put_channel_gradients(int row_blocks, const C* partials, double* part_sums) const {
    launch(stream_, blocks_for(a_.channels(), kFinalLanes), kChannelBlock, sizeof(FinalTree),
           batch_norm_gradients_kernel<C>, a_.rows(), a_.channels(), row_blocks, partials, rules_, part_sums);
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
  dispatch_floating(arguments.x.dtype, [&](auto zero) { f(Backward<decltype(zero)>(stream, arguments)); });
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

void batch_norm_gradient_sums(CudaStream& stream, ConstView dy, ConstView x, ConstView y, ConstView mean,
                              ConstView inverse_std, View sums, GradView dgamma, GradView dbeta,
                              BatchNormOptions options) {
  with_backward(stream, {dy, x, y, {}, mean, inverse_std, false, {}, {}, dgamma, dbeta, options},
                [&](const auto& backward) { backward.put_channel_gradients(sums.as<double>()); });
}

void batch_norm_backward_of_part(CudaStream& stream, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                 ConstView mean, ConstView inverse_std, ConstView sums, GradView dx,
                                 GradView dresidual, BatchNormOptions options) {
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

}  // namespace convoy
