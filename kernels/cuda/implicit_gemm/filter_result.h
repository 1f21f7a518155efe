// The result of a block of the gradient of the filters: from the registers of its threads to memory.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/implicit_gemm/filter_geometry.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::implicit_gemm {

/// The sums of a warp: for each tap, kOutputTiles tiles of 16 output and 8 input channels, as fragments of d.
using FilterSums = float[kFilterTaps][kOutputTiles][4];

inline constexpr int kTeamTiles = kOutputTiles / kFilterTeams;  // whose total a team has after add_teams()
static_assert(kFilterTeams == 2);

/// Adds the sums of both teams. Team t has the total of the tiles from t * kTeamTiles on afterwards. Sums are
/// passed through `buffer` in shared memory, which no thread may use any more.
__device__ inline void add_teams(int team, int team_thread, FilterSums& sums, float* buffer) {
  constexpr int kTeamThreads = 32 * kFilterWarps;
  static_assert(kFilterTaps * kTeamTiles * 4 * kTeamThreads * sizeof(float) <= kMaxSharedBytes);
#pragma unroll
  for (int receiver = 0; receiver < kFilterTeams; ++receiver) {
    const auto for_each_fragment = [&](auto&& f) {
#pragma unroll
      for (int tap = 0; tap < kFilterTaps; ++tap)
#pragma unroll
        for (int t = 0; t < kTeamTiles; ++t)
          f(buffer + ((tap * kTeamTiles + t) * kTeamThreads + team_thread) * 4,
            sums[tap][receiver * kTeamTiles + t]);
    };
    __syncthreads();  // the buffer is free
    if (team != receiver)
      for_each_fragment([](float* at, const float(&sum)[4]) {
        cuda::store_pack(at, cuda::Pack<float, 4>{{sum[0], sum[1], sum[2], sum[3]}});
      });
    __syncthreads();  // the sums of the other team are in it
    if (team == receiver)
      for_each_fragment([](const float* at, float(&sum)[4]) {
        const auto other = cuda::load_pack<4>(at);
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[e] += other.values[e];
      });
  }
}

/// Calls f(row, pair, sums) for the two adjacent input channels that each sum of a lane belongs to. `row` is
/// the row in [kFilterOutputs, kFilterTaps], and `pair` the first of the channels in the warp's kPack.
template <class F>
__device__ void for_each_pair(int team, const FilterSums& sums, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int receiver = 0; receiver < kFilterTeams; ++receiver) {
    if (team != receiver) continue;  // the index of a register must be a constant
#pragma unroll
    for (int t = receiver * kTeamTiles; t < (receiver + 1) * kTeamTiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int tap = 0; tap < kFilterTaps; ++tap)
          f((16 * t + 8 * half + lane / 4) * kFilterTaps + tap, lane % 4 * 2,
            cuda::Pack<float, 2>{{sums[tap][t][2 * half], sums[tap][t][2 * half + 1]}});
  }
}

/// Stores the sums of the block as f32. `out` is its first element in [O, kFilterTaps, inputs], and
/// `inputs_left` the number of input channels from there on. The four lanes of a row store a sector of 32
/// bytes.
__device__ inline void store_partial(int team, int warp, const FilterSums& sums, int inputs, int inputs_left,
                                     float* out) {
  if (warp * kPack >= inputs_left) return;
  for_each_pair(team, sums, [&](int row, int pair, const cuda::Pack<float, 2>& values) {
    cuda::store_pack(out + std::int64_t{row} * inputs + warp * kPack + pair, values);
  });
}

/// Stores or adds the sums of the block, rounded to T. They are collected in `tile`, in shared memory, which
/// no thread may use any more, and stored 16 bytes at a time. Other arguments as store_partial().
template <class T>
__device__ void store_filter(int team, int warp, GradMode mode, const FilterSums& sums, int inputs,
                             int inputs_left, unsigned char* tile, T* out) {
  const auto for_each_pack = [&](auto&& f) {
    for (int i = static_cast<int>(threadIdx.x); i < kFilterOutputs * kFilterTaps * kFilterWarps;
         i += kFilterThreads) {
      const int row = i / kFilterWarps, chunk = i % kFilterWarps;
      if (chunk * kPack < inputs_left)
        f(out + std::int64_t{row} * inputs + chunk * kPack,
          reinterpret_cast<T*>(tile + input_offset(row, chunk)));
    }
  };
  __syncthreads();  // the tile is free
  if (mode == GradMode::accumulate) {
    for_each_pack(
        [](const T* global, T* shared) { cuda::store_pack(shared, cuda::load_pack<kPack>(global)); });
    __syncthreads();
  }
  for_each_pair(team, sums, [&](int row, int pair, const cuda::Pack<float, 2>& values) {
    T* const at = reinterpret_cast<T*>(tile + input_offset(row, warp)) + pair;
    cuda::Pack<T, 2> result{};
    if (mode == GradMode::accumulate) result = cuda::load_pack<2>(at);
    for (int e = 0; e < 2; ++e)
      result.values[e] = cuda::narrow<T>(
          mode == GradMode::accumulate ? cuda::widen(result.values[e]) + values.values[e] : values.values[e]);
    cuda::store_pack(at, result);
  });
  __syncthreads();
  for_each_pack([](T* global, const T* shared) { cuda::store_pack(global, cuda::load_pack<kPack>(shared)); });
}

}  // namespace convoy::kernels::implicit_gemm
