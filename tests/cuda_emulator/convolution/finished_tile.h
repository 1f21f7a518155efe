// A finished tile of 64 output channels: from registers, rounded, to shared memory, and the sums of its channels.
#pragma once

#include "convoy/kernels/cuda/primitives/element.h"
#include "tests/cuda_emulator/convolution/slab.h"

namespace convoy::kernels::hopper {

/// A finished tile [pixel][64 channels] replaces the slab. 8 threads of a column of d access different banks.
inline constexpr unsigned kPixelBytes = 2 * kChannels + 16;

/// The sums of elements of a thread's channels, and of their squares.
template <int kCount>
class ChannelSums {
 public:
  __device__ void add(int channel, float value) {
    sums_[channel] += value;
    squares_[channel] += value * value;
  }
  /// Adds those of the lanes that differ in the bits of `kLanes`, which have the same channels. The first of these lanes
  /// stores them in `to` [2, outputs], the thread's channels `step` channels apart.
  template <unsigned kLanes>
  __device__ void store(int channel, int step, int outputs, float* to) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (unsigned lane = 1; lane < 32; lane *= 2)
        if ((kLanes & lane) != 0) {
          sums_[i] += __shfl_xor_sync(0xffffffffu, sums_[i], lane);
          squares_[i] += __shfl_xor_sync(0xffffffffu, squares_[i], lane);
        }
      if ((threadIdx.x & kLanes) == 0 && channel + i * step < outputs) {
        to[channel + i * step] = sums_[i];
        to[channel + i * step + outputs] = squares_[i];
      }
      sums_[i] = squares_[i] = 0;
    }
  }

 private:
  float sums_[kCount] = {}, squares_[kCount] = {};
};

/// Returns the first output channel that a thread has of a tile in registers. The second one is 8 more.
__device__ inline int channel_of_thread() {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  return thread / 32 * 16 + thread % 32 / 4;
}

/// Rounds a tile to where the slab was, from which all warps of the consumer have read. `add(e, pixel, value)` gets each
/// element.
template <class T, int kCount, class Add>
__device__ void round_tile(const float (&values)[kCount][4], unsigned char* to, const Add& add) {
  const int channel = channel_of_thread();
#pragma unroll
  for (int j = 0; j < kCount; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int pixel = 8 * j + static_cast<int>(threadIdx.x) % 4 * 2 + e % 2;
      const T rounded = cuda::narrow<T>(values[j][e]);
      *reinterpret_cast<T*>(to + pixel * kPixelBytes + (channel + e / 2 * 8) * sizeof(T)) = rounded;
      add(e / 2, pixel, cuda::widen(rounded));
    }
}

/// Returns 8 channels of a pixel of a rounded tile.
template <class T>
__device__ cuda::Pack<T, kPack> load_rounded(const unsigned char* tile, int pixel, int pack) {
  return cuda::load_pack<kPack>(reinterpret_cast<const T*>(tile + pixel * kPixelBytes) + pack * kPack);
}

}  // namespace convoy::kernels::hopper
