// The result of a block: from the registers of its threads to memory.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/implicit_gemm/geometry.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::implicit_gemm {

/// The sums of a warp: kTiles tiles of 16 pixels, all kColumns channels, as fragments of d.
template <int kTiles>
using Sums = float[kTiles][kColumns / 8][4];

/// Calls f(address in `out`, address in `tile`) for the packs of this thread in the block's first `rows`
/// pixels.
template <class T, class F>
__device__ void for_each_pack(const Geometry& g, int rows, unsigned char* tile, T* out, const F& f) {
  constexpr int kPacksPerRow = kColumns / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kPacksPerRow; i += kThreads) {
    const int row = i / kPacksPerRow, chunk = i % kPacksPerRow;
    f(out + std::int64_t{row} * g.outputs + chunk * kPack,
      reinterpret_cast<T*>(tile + wide_offset(row, chunk)));
  }
}

/// Collects the sums of the block in `tile`, in shared memory, rounded to T. A lane has pairs of adjacent
/// channels. If they are added to `out`, adds them before. Other threads see them after the next barrier.
template <class T, int kTiles>
__device__ void collect(const Geometry& g, int rows, GradMode mode, const Sums<kTiles>& sums,
                        unsigned char* tile, T* out) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (mode == GradMode::accumulate) {
    for_each_pack(g, rows, tile, out, [](const T* global, T* shared) {
      cuda::store_pack(shared, cuda::load_pack<kPack>(global));
    });
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (warp * kTiles + t) * 16 + half * 8 + lane / 4;
        T* const at = reinterpret_cast<T*>(tile + wide_offset(row, j)) + lane % 4 * 2;
        cuda::Pack<T, 2> pair{};
        if (mode == GradMode::accumulate) pair = cuda::load_pack<2>(at);
        for (int e = 0; e < 2; ++e) {
          const float sum = sums[t][j][2 * half + e];
          pair.values[e] =
              cuda::narrow<T>(mode == GradMode::accumulate ? cuda::widen(pair.values[e]) + sum : sum);
        }
        cuda::store_pack(at, pair);
      }
}

/// Stores or adds the sums of the block, for its first `rows` pixels. They are collected in `tile` and stored
/// 16 bytes at a time. `out` is the block's first element.
template <class T, int kTiles>
__device__ void store(const Geometry& g, int rows, GradMode mode, const Sums<kTiles>& sums,
                      unsigned char* tile, T* out) {
  collect(g, rows, mode, sums, tile, out);
  __syncthreads();
  for_each_pack(g, rows, tile, out,
                [](T* global, const T* shared) { cuda::store_pack(global, cuda::load_pack<kPack>(shared)); });
}

}  // namespace convoy::kernels::implicit_gemm
