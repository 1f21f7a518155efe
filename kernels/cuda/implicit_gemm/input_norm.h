// Batch norm and ReLU of a convolution's input, applied in shared memory.
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/geometry.h"
#include "convoy/kernels/cuda/normalization/normalized.h"
#include "convoy/kernels/cuda/primitives/channel_tiles.h"

namespace convoy::kernels::implicit_gemm {

/// The arguments of normalized(), for all channels. `mean` is null if the input is not normalized.
struct NormCoefficients {
  const float *mean, *factor, *offset;
};

/// The coefficients of a pack of channels, in registers.
struct PackNorm {
  cuda::ChannelValues<float, kPack> means, factors, offsets;

  __device__ PackNorm(const NormCoefficients& from, int channel)
      : means(from.mean + channel), factors(from.factor + channel), offsets(from.offset + channel) {}
  /// Returns normalized() of channel i of the pack.
  __device__ float of(int i, float x) const { return cuda::normalized(x, means[i], factors[i], offsets[i]); }
  /// Replaces a pack x in shared memory by max(normalized(x), 0), rounded to T. NaN stays NaN.
  template <class T>
  __device__ void apply(T* at) const {
    auto pack = cuda::load_pack<kPack>(at);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      pack.values[i] = cuda::narrow<T>(cuda::relu(of(i, cuda::widen(pack.values[i]))));
    cuda::store_pack(at, pack);
  }
};

/// The coefficients of kCount adjacent channels in shared memory, at a multiple of 16 bytes: for kernels whose
/// threads have no registers left to hold theirs.
template <int kCount>
struct alignas(16) SharedNorm {
  float means[kCount], factors[kCount], offsets[kCount];

  /// Loads the coefficients of the channels from `first` on. mean [channels]; coefficients [2, channels] are
  /// factor and offset. Those of channels that do not exist become 0. At least kCount threads must call it.
  /// Other threads see the values after the next barrier.
  __device__ void load(const float* mean, const float* coefficients, int first, int channels) {
    const int i = static_cast<int>(threadIdx.x), channel = first + i;
    if (i >= kCount) return;
    const bool exists = channel < channels;
    means[i] = exists ? mean[channel] : 0;
    factors[i] = exists ? coefficients[channel] : 0;
    offsets[i] = exists ? coefficients[channels + channel] : 0;
  }
  __device__ NormCoefficients view() const { return {means, factors, offsets}; }
};

/// Replaces x by max(normalized(x), 0), rounded to T, in the chunks of a slab that this thread has copied by
/// fetch_pixels() and that have landed. All of them have the same channels, those of `norm`. The rows of
/// zeros stay zeros; a pixel that no tap reaches may become any value.
template <class T, int kPixels>
__device__ void normalize_pixels(const Geometry& g, const PackNorm& norm, unsigned char* slab) {
  static_assert(kThreads % 2 == 0);  // i % 2, the half of the slab's channels, is that of the thread
  const int chunks = 2 * (kPixels + 2 * g.halo());
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kThreads)
    norm.apply(reinterpret_cast<T*>(slab + narrow_offset(kZeroRows + i / 2, i % 2)));
}

}  // namespace convoy::kernels::implicit_gemm
