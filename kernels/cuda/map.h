// The loop of every elementwise CUDA kernel; its CPU sister is kernels/cpu/map.h.
#pragma once

#include <algorithm>

#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"
#include "kernels/runtime/view.h"

namespace convoy::cuda {

inline constexpr int kMapBlock = 256;  // threads: whole warps, and several blocks fit an SM

/// Loads of 16 bytes that a thread has in flight, over all inputs. Memory of 4.8 TB/s that answers after 0.8
/// us wants 4 MB under way, 29 KiB on each of 132 SMs: that is one such load of each of an SM's 2048 threads.
/// The others make up for blocks that come and go, and for functions whose registers leave room for fewer
/// threads.
inline constexpr int kMapLoads = 4;
inline constexpr int kMapElements = 16;  // of one thread, at most: its code is unrolled over them

/// How arrays of T and X… are shared out. Neighbouring threads have neighbouring packs of kWidth elements,
/// and the kPacks packs of one thread lie kMapBlock packs apart, so that each access of a warp is one piece
/// of memory.
template <class T, class... X>
struct MapTile {
  static constexpr int kInputs = sizeof...(X);
  static constexpr int kWidth = std::min({kVectorWidth<T>, kVectorWidth<X>...});  // the largest type decides
  static constexpr int kPacks =
      std::clamp(kMapLoads / std::max(1, kInputs), 1, std::max(1, kMapElements / kWidth));
  static constexpr int kElements = kMapBlock * kPacks * kWidth;  // of a block
};

/// Loops over these are unrolled by order, so that each element is a register.
template <class T, int kWidth, int kPacks>
struct PacksOfThread {
  Pack<T, kWidth> packs[kPacks];
};

/// Those of the thread's packs that lie within the first `count`.
template <int kWidth, int kPacks, class T>
__device__ PacksOfThread<T, kWidth, kPacks> load_packs(int count, const T* from) {
  PacksOfThread<T, kWidth, kPacks> in{};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int pack = p * kMapBlock + static_cast<int>(threadIdx.x);
    if (pack < count) in.packs[p] = load_pack<kWidth>(from + pack * kWidth);
  }
  return in;
}

/// y = f(x…) for the thread's packs within the first `count`. All come in before the first goes out: the
/// loads wait for memory together, and y may be one of the inputs.
template <int kWidth, int kPacks, class F, class T, class... X>
__device__ void map_packs(int count, F f, T* y, const X*... x) {
  const auto of_pack = [&f](const Pack<X, kWidth>&... in) {
    Pack<T, kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.values[i] = f(in.values[i]...);
    return out;
  };
  const auto of_thread = [&](const PacksOfThread<X, kWidth, kPacks>&... in) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kMapBlock + static_cast<int>(threadIdx.x);
      if (pack < count) store_pack(y + pack * kWidth, of_pack(in.packs[p]...));
    }
  };
  of_thread(load_packs<kWidth, kPacks>(count, x)...);
}

/// One block a tile. What fills no whole pack goes element by element, as everything does where the arrays do
/// not begin where packs may.
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

/// Whether packs of kWidth elements may begin here.
template <int kWidth, class T>
bool is_aligned_for(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Pack<T, kWidth>) == 0;
}

/// y[i] = f(x[i]…) for i in [0, n), on elements as they are stored.
template <class F, class T, class... X>
void launch_map(CudaStream& stream, std::int64_t n, F f, T* y, const X*... x) {
  if (n == 0) return;
  using Tile = MapTile<T, X...>;
  const bool in_packs = is_aligned_for<Tile::kWidth>(y) && (is_aligned_for<Tile::kWidth>(x) && ...);
  launch(stream, blocks_for(n, Tile::kElements), kMapBlock, 0, map_kernel<F, T, X...>, n, in_packs, f, y,
         x...);
}

/// f, a struct whose operator() is a template on the type that is computed in, as a function of what is
/// stored.
template <class T, class F>
struct Written {
  F f;
  template <class... X>
  __device__ T operator()(X... x) const {
    return narrow<T>(f(widen(x)...));
  }
};

/// The same, added to what was there.
template <class T, class F>
struct Added {
  F f;
  template <class... X>
  __device__ T operator()(T before, X... x) const {
    return narrow<T>(widen(before) + f(widen(x)...));
  }
};

/// y[i] = f(x[i]…) over whole arrays of one floating-point type.
template <class F, class... X>
void map_arrays(CudaStream& stream, F f, const View& y, const X&... x) {
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_map(stream, y.numel(), Written<T, F>{f}, y.as<T>(), x.template as<T>()...);
  });
}

/// y[i] = f(x[i]…), or y[i] += f(x[i]…). Nothing happens where y is null: a gradient nobody wants.
template <class F, class... X>
void map_arrays(CudaStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted()) return;
  if (y.mode == Mode::write) return map_arrays(stream, f, static_cast<const View&>(y), x...);
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* const before = y.template as<T>();
    launch_map(stream, y.numel(), Added<T, F>{f}, y.template as<T>(), before, x.template as<T>()...);
  });
}

/// map_arrays with its arguments in the kernels' order, so that the function stands last.
template <class Y, class F>
void map(CudaStream& stream, const ConstView& x, const Y& y, F f) {
  map_arrays(stream, f, y, x);
}
template <class Y, class F>
void map(CudaStream& stream, const ConstView& x, const ConstView& y, const Y& z, F f) {
  map_arrays(stream, f, z, x, y);
}

}  // namespace convoy::cuda
