// The value that batch norm computes before a residual and an activation, and the gradient of that value.
#pragma once

#include <cmath>

#include "convoy/kernels/cuda/primitives/channel_sums.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"

namespace convoy::kernels::cuda {

/// Returns (x - mean) factor + offset. The backward pass repeats this to learn the sign of the forward pass's
/// result, so both must round alike. Therefore the multiplication and the addition are one operation with one
/// rounding, and not left to the compiler to contract.
template <class C>
__device__ C normalized(C x, C mean, C factor, C offset) {
  return std::fma(x - mean, factor, offset);
}

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
  std::int64_t stride;             // between the rows

  __device__ UpstreamRows(const Upstream<T>& from, const ChannelTiling& tiling, const ThreadTile& tile,
                          bool is_aligned)
      : stride(tile.row_stride * tiling.channels), from_(from), is_aligned_(is_aligned) {
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
    g.load(from_.dy + first, stride, is_aligned_);
    if constexpr (kDerivative == Derivative::relu_of_y) u.load(from_.y + first, stride, is_aligned_);
    if (reads_x || computes_again(kDerivative)) data.load(x + first, stride, is_aligned_);
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
  bool is_aligned_;
  ChannelValues<C, kWidth> factors_, offsets_;
};

}  // namespace convoy::kernels::cuda
