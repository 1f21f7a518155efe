// The loop of all elementwise CUDA kernels. The CPU version is kernels/cpu/primitives/map.h.
#pragma once

#include <algorithm>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

inline constexpr int kMapBlock = 256;  // threads: whole warps, and several blocks fit an SM

/// 16-byte loads that a thread has in flight, over all inputs. Memory with 4.8 TB/s and a latency of 0.8 us
/// needs 4 MB in flight, which is 29 KiB on each of 132 SMs: one such load by each of an SM's 2048 threads.
/// The other loads compensate for blocks that start and end, and for functions whose registers allow fewer
/// threads.
inline constexpr int kMapLoads = 4;
inline constexpr int kMapElements = 16;  // maximum per thread: the code is unrolled over them

/// The assignment of the elements of arrays of T and X… to threads. Adjacent threads have adjacent packs of
/// kWidth elements. The kPacks packs of one thread have a stride of kMapBlock packs, so that each access of a
/// warp is contiguous.
template <class T, class... X>
struct MapTile {
  static constexpr int kInputs = sizeof...(X);
  static constexpr int kWidth = std::min({kVectorWidth<T>, kVectorWidth<X>...});  // set by the largest type
  static constexpr int kPacks =
      std::clamp(kMapLoads / std::max(1, kInputs), 1, std::max(1, kMapElements / kWidth));
  static constexpr int kElements = kMapBlock * kPacks * kWidth;  // per block
};

/// The packs of one thread. Loops over them must be unrolled by pragma, so that each element is a register.
template <class T, int kWidth, int kPacks>
struct ThreadPacks {
  Pack<T, kWidth> packs[kPacks];
};

/// Loads those of the thread's packs that are within the first `count` packs.
template <int kWidth, int kPacks, class T>
__device__ ThreadPacks<T, kWidth, kPacks> load_packs(int count, const T* from) {
  ThreadPacks<T, kWidth, kPacks> in{};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int pack = p * kMapBlock + static_cast<int>(threadIdx.x);
    if (pack < count) in.packs[p] = load_pack<kWidth>(from + pack * kWidth);
  }
  return in;
}

/// Computes y = f(x…) for the thread's packs within the first `count` packs. Loads all packs before the first
/// store: the loads overlap, and y may be one of the inputs.
template <int kWidth, int kPacks, class F, class T, class... X>
__device__ void map_packs(int count, F f, T* y, const X*... x) {
  const auto map_pack = [&f](const Pack<X, kWidth>&... in) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.values[i] = f(in.values[i]...);
    return out;
  };
  const auto map_and_store = [&](const ThreadPacks<X, kWidth, kPacks>&... in) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kMapBlock + static_cast<int>(threadIdx.x);
      if (pack < count) store_pack(y + pack * kWidth, map_pack(in.packs[p]...));
    }
  };
  map_and_store(load_packs<kWidth, kPacks>(count, x)...);
}

/// One block per tile. Elements that do not fill a pack are processed one by one, and so are all elements if
/// the arrays are not aligned for packs.
template <class F, class T, class... X>
__global__ void __launch_bounds__(kMapBlock)
    map_kernel(std::int64_t n, bool in_packs, F f, T* y, const X*... x) {
  using Tile = MapTile<T, X...>;
  const std::int64_t begin = std::int64_t{blockIdx.x} * Tile::kElements;
  const int count = static_cast<int>(std::min<std::int64_t>(n - begin, Tile::kElements));
  const int packs = in_packs ? count / Tile::kWidth : 0;
  map_packs<Tile::kWidth, Tile::kPacks>(packs, f, y + begin, (x + begin)...);
  for (int done = packs * Tile::kWidth; done < count; done += kMapBlock * Tile::kPacks)
    map_packs<1, Tile::kPacks>(count - done, f, y + begin + done, (x + begin + done)...);
}

/// Returns whether `pointer` is aligned for packs of kWidth elements.
template <int kWidth, class T>
bool is_aligned_for(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Pack<T, kWidth>) == 0;
}

/// Enqueues y[i] = f(x[i]…) for i in [0, n). f takes and returns elements in their storage types.
template <class F, class T, class... X>
void launch_map(CudaStream& stream, std::int64_t n, F f, T* y, const X*... x) {
  if (n == 0) return;
  using Tile = MapTile<T, X...>;
  const bool in_packs = is_aligned_for<Tile::kWidth>(y) && (is_aligned_for<Tile::kWidth>(x) && ...);
  launch(stream, blocks_for(n, Tile::kElements), kMapBlock, 0, map_kernel<F, T, X...>, n, in_packs, f, y,
         x...);
}

/// Adapts f, which computes in the compute type, to a function of elements in their storage type.
template <class T, class F>
struct Overwrite {
  F f;
  template <class... X>
  __device__ T operator()(X... x) const {
    return narrow<T>(f(widen(x)...));
  }
};

/// As Overwrite, but adds the result to the previous element.
template <class T, class F>
struct Accumulate {
  F f;
  template <class... X>
  __device__ T operator()(T before, X... x) const {
    return narrow<T>(widen(before) + f(widen(x)...));
  }
};

/// Enqueues y[i] = f(x[i]…) over whole arrays of one floating-point type. f is a struct whose operator() is a
/// template on the compute type.
template <class F, class... X>
void map_arrays(CudaStream& stream, F f, const View& y, const X&... x) {
  dispatch(kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_map(stream, y.numel(), Overwrite<T, F>{f}, y.as<T>(), x.template as<T>()...);
  });
}

/// Enqueues y[i] = f(x[i]…), or y[i] += f(x[i]…). Does nothing if y is null (an unwanted gradient).
template <class F, class... X>
void map_arrays(CudaStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted()) return;
  if (y.mode == GradMode::overwrite) return map_arrays(stream, f, static_cast<const View&>(y), x...);
  dispatch(kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const before = y.template as<T>();
    launch_map(stream, y.numel(), Accumulate<T, F>{f}, y.template as<T>(), before, x.template as<T>()...);
  });
}

/// map_arrays() with the arguments in the order of the kernels and the function last.
template <class Y, class F>
void map(CudaStream& stream, const ConstView& x, const Y& y, F f) {
  map_arrays(stream, f, y, x);
}
template <class Y, class F>
void map(CudaStream& stream, const ConstView& x, const ConstView& y, const Y& z, F f) {
  map_arrays(stream, f, z, x, y);
}

}  // namespace convoy::kernels::cuda
