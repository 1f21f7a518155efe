// kernels/gather.h on the GPU. Reading moves packs of up to 16 bytes. In a sum, each thread has a destination and reads all
// indices that may choose it. So the order is fixed without atomics, and a sum with K indices costs K comparisons for each
// element (of select: for each pack), which networks for images have few of.
#include "convoy/kernels/gather.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/words.h"

namespace convoy::kernels {
namespace {

using cuda::IndexMap, cuda::Pack;

constexpr int kGatherBlock = 256;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Computes y[o, k, d] = x[o, indices[k], d] for packs. The index of a pack counts through [O, K, D].
template <class T, int kWidth>
__global__ void __launch_bounds__(kGatherBlock)
    select_kernel(std::int64_t n, std::int64_t x_rows, cuda::Divisor rows, cuda::Divisor columns,
                  Pack<T, kWidth> invalid, const std::int32_t* indices, const T* x, T* y) {
  using P = Pack<T, kWidth>;
  const std::int64_t index = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (index >= n) return;
  const std::int64_t row = columns.quotient(index);
  const std::int64_t slab = rows.quotient(row);
  const std::int32_t chosen = indices[row - slab * rows.value()];
  const bool is_valid = chosen >= 0 && chosen < x_rows;
  const std::int64_t from = (slab * x_rows + chosen) * columns.value() + index - row * columns.value();
  reinterpret_cast<P*>(y)[index] = is_valid ? reinterpret_cast<const P*>(x)[from] : invalid;
}

/// Finds the place in x of each index of gather.
class Places {
 public:
  Places(const Shape& x, const Shape& indices, int axis)
      : Places(Strides::row_major(x), x[axis], indices, static_cast<std::size_t>(axis)) {}

  /// Returns the place of index k, whose value is `chosen`; -1 if it is out of range.
  __device__ std::int64_t place(std::int64_t k, std::int32_t chosen) const {
    if (chosen < 0 || chosen >= size_) return -1;
    std::int64_t offset[1];
    others_.offsets_of(k, offset);
    return offset[0] + chosen * stride_;
  }

 private:
  Places(Strides x, std::int64_t size, const Shape& indices, std::size_t axis)
      : size_(size), stride_(std::exchange(x.of_axis[axis], 0)), others_(LoopNest<1>(indices, {x})) {}

  std::int64_t size_, stride_;  // of the axis that indices choose from
  IndexMap<1> others_;
};

/// Computes y[k] = x[place of index k].
template <class T>
__global__ void __launch_bounds__(kGatherBlock)
    gather_kernel(std::int64_t n, Places places, T invalid, const std::int32_t* indices, const T* x, T* y) {
  const std::int64_t k = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (k >= n) return;
  const std::int64_t place = places.place(k, indices[k]);
  y[k] = place >= 0 ? x[place] : invalid;
}

/// Writes sums to a destination, or adds them to it.
template <class T, class C, int kWidth>
__device__ void store_sums(const cuda::CompensatedSum<C> (&sums)[kWidth], GradMode mode, T* to) {
  Pack<T, kWidth> total = mode == GradMode::accumulate ? cuda::load_pack<kWidth>(to) : Pack<T, kWidth>{};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const C before = mode == GradMode::accumulate ? cuda::widen(total.values[i]) : C{0}, lost = sums[i].lost;
    total.values[i] =
        cuda::narrow<T>(before + (sums[i].sum + (lost == lost ? lost : C{0})));  // infinity loses NaN
  }
  cuda::store_pack(to, total);
}

/// Sums the rows of dy [O, terms, D] at the indices of each row of dx [O, V, D]. A thread has a pack of dx.
template <class T, int kWidth>
__global__ void __launch_bounds__(kGatherBlock)
    select_sums_kernel(std::int64_t n, int terms, cuda::Divisor rows, cuda::Divisor columns, GradMode mode,
                       const std::int32_t* indices, const T* dy, T* dx) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (index >= n) return;
  const std::int64_t row = columns.quotient(index), slab = rows.quotient(row);
  const auto destination = static_cast<std::int32_t>(row - slab * rows.value());
  const T* from = dy + (slab * terms * columns.value() + index - row * columns.value()) * kWidth;
  cuda::CompensatedSum<cuda::compute_t<T>> sums[kWidth];
  for (int k = 0; k < terms; ++k, from += columns.value() * kWidth) {
    if (indices[k] != destination) continue;
    const auto term = cuda::load_pack<kWidth>(from);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i].add(cuda::widen(term.values[i]));
  }
  store_sums(sums, mode, dx + index * kWidth);
}

/// Sums the elements of dy at the indices of each element of dx. `map` gives an element's place in dx, that of the first
/// index that may choose it, and its position along the axis, which has `terms` indices.
template <class T>
__global__ void __launch_bounds__(kGatherBlock)
    gather_sums_kernel(std::int64_t n, IndexMap<3> map, int terms, std::int64_t stride, GradMode mode,
                       const std::int32_t* indices, const T* dy, T* dx) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (index >= n) return;
  std::int64_t offsets[3];
  map.offsets_of(index, offsets);
  cuda::CompensatedSum<cuda::compute_t<T>> sums[1];
  std::int64_t term = offsets[1];
  for (int k = 0; k < terms; ++k, term += stride)
    if (indices[term] == offsets[2]) sums[0].add(cuda::widen(dy[term]));
  store_sums(sums, mode, dx + offsets[0]);
}

/// Calls f with a value of the opaque pack that has `bytes` bytes: 1, 2, 4, 8 or 16.
template <class F>
void dispatch_pack(int bytes, F&& f) {
  switch (bytes) {
    case 1: return f(Pack<std::uint8_t, 1>{});
    case 2: return f(Pack<std::uint16_t, 1>{});
    case 4: return f(Pack<std::uint32_t, 1>{});
    case 8: return f(Pack<std::uint32_t, 2>{});
    default: return f(Pack<std::uint32_t, 4>{});
  }
}

/// Returns the number of elements per pack, a power of two: as many as divide a row, and are aligned in both
/// arrays.
int pack_width(const ConstView& x, const View& y) {
  const auto addresses = reinterpret_cast<std::uintptr_t>(x.data) | reinterpret_cast<std::uintptr_t>(y.data);
  const auto fits = [&](int width) {
    return y.shape[-1] % width == 0 && addresses % (static_cast<std::size_t>(width) * size_of(y.dtype)) == 0;
  };
  int width = cuda::kVectorBytes / static_cast<int>(size_of(y.dtype));
  while (!fits(width)) width /= 2;
  return width;
}

}  // namespace

void index_select_forward(CudaStream& stream, ConstView x, ConstView indices, View y) {
  if (y.numel() == 0) return;
  const int width = pack_width(x, y);
  const std::int64_t n = y.numel() / width;
  dispatch_pack(width * static_cast<int>(size_of(y.dtype)), [&]<class T, int kWidth>(Pack<T, kWidth>) {
    launch(stream, blocks_for(n, kGatherBlock), kGatherBlock, 0, select_kernel<T, kWidth>, n, x.shape[1],
           cuda::Divisor(y.shape[1]), cuda::Divisor(y.shape[2] / width),
           filled_word<Pack<T, kWidth>>(kNan, y.dtype), indices.as<std::int32_t>(), x.as<T>(), y.as<T>());
  });
}

void index_select_backward(CudaStream& stream, ConstView dy, ConstView indices, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto sum = [&](auto width) {
      const std::int64_t n = dx.numel() / width;
      launch(stream, blocks_for(n, kGatherBlock), kGatherBlock, 0, select_sums_kernel<T, width()>, n,
             static_cast<int>(indices.numel()), cuda::Divisor(dx.shape[1]),
             cuda::Divisor(dx.shape[2] / width), dx.mode, indices.as<std::int32_t>(), dy.as<T>(), dx.as<T>());
    };
    constexpr int kWidth = cuda::kVectorWidth<T>;
    if (dx.shape[2] % kWidth == 0 && cuda::is_aligned(dy.data) && cuda::is_aligned(dx.data))
      sum(std::integral_constant<int, kWidth>{});
    else
      sum(std::integral_constant<int, 1>{});
  });
}

void gather_forward(CudaStream& stream, ConstView x, ConstView indices, int axis, View y) {
  const std::int64_t n = y.numel();
  if (n == 0) return;
  dispatch_word(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(n, kGatherBlock), kGatherBlock, 0, gather_kernel<T>, n,
           Places(x.shape, indices.shape, axis), filled_word<T>(kNan, y.dtype), indices.as<std::int32_t>(),
           x.as<T>(), y.as<T>());
  });
}

void gather_backward(CudaStream& stream, ConstView dy, ConstView indices, int axis, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  // Indices may be fewer than dx on other axes: no index chooses an element outside of this box.
  std::vector<std::int64_t> sizes(indices.shape.sizes().begin(), indices.shape.sizes().end());
  sizes[static_cast<std::size_t>(axis)] = dx.shape[axis];
  const Shape box(sizes);
  if (dx.mode == GradMode::overwrite && !(box == dx.shape)) fill(stream, 0, dx);
  if (box.numel() == 0) return;
  const auto along = static_cast<std::size_t>(axis);
  Strides first = Strides::row_major(indices.shape), position{};
  const std::int64_t stride = std::exchange(first.of_axis[along], 0);
  position.of_axis[along] = 1;
  const IndexMap<3> map(LoopNest<3>(box, {Strides::row_major(dx.shape), first, position}));
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(box.numel(), kGatherBlock), kGatherBlock, 0, gather_sums_kernel<T>, box.numel(),
           map, static_cast<int>(indices.shape[axis]), stride, dx.mode, indices.as<std::int32_t>(),
           dy.as<T>(), dx.as<T>());
  });
}

}  // namespace convoy::kernels
