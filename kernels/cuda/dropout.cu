// Dropout on the GPU (kernels/elementwise.h). One Philox draw decides on four adjacent elements of a sample,
// called a quad; each thread processes whole quads. No mask is stored: the backward draws the same words
// again.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

inline constexpr int kDropoutBlock = 256;  // threads
inline constexpr int kQuad = 4;            // words per Philox draw
inline constexpr std::int64_t kDropoutRows =
    2048;  // maximum gridDim.y, over samples: twice what a GPU runs at once

/// Loads the first `count` elements of a quad. If `as_pack`, loads all four in one aligned access.
template <class T>
__device__ cuda::Pack<T, kQuad> load_quad(bool as_pack, int count, const T* from) {
  if (as_pack) return cuda::load_pack<kQuad>(from);
  cuda::Pack<T, kQuad> quad{};
  for (int k = 0; k < kQuad; ++k)
    if (k < count) quad.values[k] = from[k];
  return quad;
}
template <class T>
__device__ void store_quad(bool as_pack, int count, T* to, const cuda::Pack<T, kQuad>& quad) {
  if (as_pack) return cuda::store_pack(to, quad);
  for (int k = 0; k < kQuad; ++k)
    if (k < count) to[k] = quad.values[k];
}

/// x is [samples, sample_size]. The x dimension of the grid covers the quads of a sample and the y dimension
/// covers the samples, so that no thread divides. If there are more samples than rows of threads, each row
/// takes several samples.
template <GradMode kMode, class T>
__global__ void __launch_bounds__(kDropoutBlock)
    dropout_kernel(std::int64_t samples, std::int64_t sample_size, bool in_packs, Random random,
                   std::uint32_t dropped_below, cuda::compute_t<T> factor, const std::int32_t* ids,
                   const T* x, T* y) {
  const std::int64_t quad = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int count = static_cast<int>(std::min<std::int64_t>(kQuad, sample_size - kQuad * quad));
  if (count <= 0) return;
  const Random draws = random.resolved();
  const std::int64_t rows = std::int64_t{gridDim.y} * blockDim.y;
  for (std::int64_t sample = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; sample < samples;
       sample += rows) {
    const std::int64_t first = sample * sample_size + kQuad * quad;
    const auto in = load_quad(in_packs, count, x + first);
    cuda::Pack<T, kQuad> out;
    if constexpr (kMode == GradMode::accumulate) out = load_quad<T>(in_packs, count, y + first);
    const std::array<std::uint32_t, kQuad> words =
        draws.words(static_cast<std::uint64_t>(ids[sample]), static_cast<std::uint32_t>(quad));
    for (int k = 0; k < kQuad; ++k) {
      using Compute = cuda::compute_t<T>;
      const Compute value = (words[k] >> 8) < dropped_below ? Compute{0} : cuda::widen(in.values[k]) * factor;
      if constexpr (kMode == GradMode::accumulate) {
        out.values[k] = cuda::narrow<T>(cuda::widen(out.values[k]) + value);
      } else {
        out.values[k] = cuda::narrow<T>(value);
      }
    }
    store_quad(in_packs, count, y + first, out);
  }
}

}  // namespace

void dropout(CudaStream& stream, ConstView x, ConstView sample_ids, double p, Random random, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  const std::int64_t samples = sample_ids.numel();
  const std::int64_t sample_size = y.numel() / samples;
  const std::int64_t quads = (sample_size + kQuad - 1) / kQuad;
  // Evaluates to_uniform(word) < p in integers: to_uniform() is the upper 24 bits of the word times 2^-24.
  const auto dropped_below = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  // One thread per quad of a sample, rounded up to a power of two. The other rows of the block take other
  // samples.
  const auto columns = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(quads, kDropoutBlock)));
  const dim3 block(columns, kDropoutBlock / columns);
  const std::int64_t block_rows = (samples + block.y - 1) / block.y;
  const dim3 grid(blocks_for(quads, static_cast<int>(block.x)),
                  static_cast<unsigned>(std::min(block_rows, kDropoutRows)));
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Quad = cuda::Pack<T, kQuad>;
    const auto begins_a_quad = [](const void* pointer) {
      return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Quad) == 0;
    };
    const bool in_packs = sample_size % kQuad == 0 && begins_a_quad(x.data) && begins_a_quad(y.data);
    const auto kernel = y.mode == GradMode::accumulate ? dropout_kernel<GradMode::accumulate, T>
                                                       : dropout_kernel<GradMode::overwrite, T>;
    launch(stream, grid, block, 0, kernel, samples, sample_size, in_packs, random, dropped_below,
           static_cast<cuda::compute_t<T>>(1 / (1 - p)), sample_ids.as<std::int32_t>(), x.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels
