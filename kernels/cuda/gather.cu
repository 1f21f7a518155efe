// kernels/gather.h on the GPU. Reading moves packs of up to 16 bytes. A sum sorts the terms by their
// destinations (primitives/radix_sort.h) and adds them in two launches, without atomics:
//
// sum_runs_kernel: splits the sorted terms into chunks of 32. A team of threads adds the terms of one chunk,
// destination by destination. It writes the sum of a destination whose terms are all in the chunk. Otherwise it
// writes a partial sum: at 0 if the terms begin in an earlier chunk, at 1 if they begin in this one.
//
// sum_partials_kernel: adds the partial sums of a destination in order.
//
// An index that occurs often, such as that of padding, therefore costs a thread one addition per 32 terms.
#include "convoy/kernels/gather.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/radix_sort.h"
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

/// Computes the same places as keys, and `invalid` for an index out of range.
__global__ void __launch_bounds__(kGatherBlock)
    destinations_kernel(std::int64_t n, Places places, std::uint32_t invalid, const std::int32_t* indices,
                        std::uint32_t* keys) {
  const std::int64_t k = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (k >= n) return;
  const std::int64_t place = places.place(k, indices[k]);
  keys[k] = place >= 0 ? static_cast<std::uint32_t>(place) : invalid;
}

constexpr int kSumBlock = 256;
constexpr int kChunk = 32;  // terms

/// The sizes of a sum, columns in packs. A team of threads has one item: a chunk, a slab of dy and dx, and as
/// many columns as the team has threads.
struct SumSizes {
  std::int64_t terms, destinations, columns;
  std::int64_t chunks, items;
  int team;  // threads, a power of two
  cuda::Divisor column_teams, chunk_count;

  SumSizes(std::int64_t slabs, std::int64_t term_count, std::int64_t destination_count, std::int64_t packs)
      : terms(term_count),
        destinations(destination_count),
        columns(packs),
        chunks((term_count + kChunk - 1) / kChunk),
        items(0),
        team(static_cast<int>(std::min<std::int64_t>(
            kSumBlock, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(packs)))))),
        column_teams((packs + team - 1) / team),
        chunk_count(chunks) {
    items = slabs * chunks * column_teams.value();
  }
  unsigned blocks() const { return blocks_for(items, kSumBlock / team); }
};

/// The item of a thread.
struct SumItem {
  std::int64_t slab, chunk, column;
  bool exists;

  __device__ explicit SumItem(const SumSizes& sizes) {
    const int in_block = static_cast<int>(threadIdx.x) / sizes.team;
    const std::int64_t item = std::int64_t{blockIdx.x} * (kSumBlock / sizes.team) + in_block;
    const std::int64_t chunks = sizes.column_teams.quotient(item);
    slab = sizes.chunk_count.quotient(chunks);
    chunk = chunks - slab * sizes.chunks;
    column = (item - chunks * sizes.column_teams.value()) * sizes.team +
             static_cast<int>(threadIdx.x) % sizes.team;
    exists = item < sizes.items && column < sizes.columns;
  }
  /// Returns the first element of a row of packs in an array [slabs, rows, columns].
  template <int kWidth>
  __device__ std::int64_t element(const SumSizes& sizes, std::int64_t rows, std::int64_t row) const {
    return ((slab * rows + row) * sizes.columns + column) * kWidth;
  }
};

/// Adds a pack to f32 or f64 sums.
template <class C, class T, int kWidth>
__device__ void add_pack(Pack<C, kWidth>& sums, const Pack<T, kWidth>& terms) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums.values[i] += cuda::widen(terms.values[i]);
}

/// Writes sums to a destination, or adds them to it.
template <class T, class C, int kWidth>
__device__ void store_sums(const Pack<C, kWidth>& sums, GradMode mode, T* to) {
  Pack<C, kWidth> total = sums;
  if (mode == GradMode::accumulate) add_pack(total, cuda::load_pack<kWidth>(to));
  Pack<T, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) rounded.values[i] = cuda::narrow<T>(total.values[i]);
  cuda::store_pack(to, rounded);
}

/// `partials` is [slabs, chunks, 2, columns].
template <class T, int kWidth>
__global__ void __launch_bounds__(kSumBlock)
    sum_runs_kernel(SumSizes sizes, GradMode mode, const std::uint32_t* keys, const std::int32_t* positions,
                    const T* dy, T* dx, cuda::compute_t<T>* partials) {
  using Sums = Pack<cuda::compute_t<T>, kWidth>;
  constexpr int kLoads = 4;
  const SumItem item(sizes);
  if (!item.exists) return;
  const std::int64_t begin = item.chunk * kChunk, remaining = sizes.terms - begin;
  const int count = remaining < kChunk ? static_cast<int>(remaining) : kChunk;
  const T* const in = dy + item.element<kWidth>(sizes, sizes.terms, 0);
  bool continues_before = begin > 0 && keys[begin - 1] == keys[begin];
  Sums sums{};
  keys += begin;
  positions += begin;
  for (int first = 0; first < count; first += kLoads) {
    Pack<T, kWidth> terms[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (first + k < count)
        terms[k] = cuda::load_pack<kWidth>(in + positions[first + k] * sizes.columns * kWidth);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int i = first + k;
      if (i >= count) break;
      const std::uint32_t key = keys[i];
      if (key >= sizes.destinations) return;  // out of range, as all keys behind
      add_pack(sums, terms[k]);
      const bool continues = i + 1 < remaining && keys[i + 1] == key;
      if (continues && i + 1 < count) continue;
      if (continues_before || continues) {
        const std::int64_t row = 2 * item.chunk + (continues_before ? 0 : 1);
        cuda::store_pack(partials + item.element<kWidth>(sizes, 2 * sizes.chunks, row), sums);
      } else {
        store_sums(sums, mode, dx + item.element<kWidth>(sizes, sizes.destinations, key));
      }
      sums = {};
      continues_before = false;
    }
  }
}

/// Returns the number of keys that are at most `key`, which is at least `first`.
__device__ inline std::int64_t end_of_run(std::int64_t first, std::int64_t n, const std::uint32_t* keys,
                                          std::uint32_t key) {
  std::int64_t end = n;
  while (first < end) {
    const std::int64_t middle = first + (end - first) / 2;
    if (keys[middle] <= key) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

/// The item of the chunk in which the terms of a destination begin adds all of its partial sums.
template <class T, int kWidth>
__global__ void __launch_bounds__(kSumBlock)
    sum_partials_kernel(SumSizes sizes, GradMode mode, const std::uint32_t* keys,
                        const cuda::compute_t<T>* partials, T* dx) {
  const SumItem item(sizes);
  const std::int64_t begin = item.chunk * kChunk, end = begin + kChunk;
  if (!item.exists || end >= sizes.terms) return;
  const std::uint32_t key = keys[end - 1];
  const bool begins_before = begin > 0 && keys[begin - 1] == key;
  if (begins_before || keys[end] != key || key >= sizes.destinations) return;
  auto sums =
      cuda::load_pack<kWidth>(partials + item.element<kWidth>(sizes, 2 * sizes.chunks, 2 * item.chunk + 1));
  const std::int64_t last = (end_of_run(end, sizes.terms, keys, key) - 1) / kChunk;
#pragma unroll 4
  for (std::int64_t chunk = item.chunk + 1; chunk <= last; ++chunk)
    add_pack(sums,
             cuda::load_pack<kWidth>(partials + item.element<kWidth>(sizes, 2 * sizes.chunks, 2 * chunk)));
  store_sums(sums, mode, dx + item.element<kWidth>(sizes, sizes.destinations, key));
}

/// The sums of one call, in packs of kWidth elements.
template <class T, int kWidth>
void launch_sums(CudaStream& stream, const SumSizes& sizes, std::int64_t slabs, cuda::SortedKeys sorted,
                 const ConstView& dy, const GradView& dx) {
  using C = cuda::compute_t<T>;
  const cuda::Scratch partials(
      stream, static_cast<std::size_t>(slabs * sizes.chunks * 2 * sizes.columns * kWidth) * sizeof(C));
  launch(stream, sizes.blocks(), kSumBlock, 0, sum_runs_kernel<T, kWidth>, sizes, dx.mode, sorted.keys,
         sorted.positions, dy.as<T>(), dx.as<T>(), partials.as<C>());
  if (sizes.chunks > 1)
    launch(stream, sizes.blocks(), kSumBlock, 0, sum_partials_kernel<T, kWidth>, sizes, dx.mode, sorted.keys,
           partials.as<C>(), dx.as<T>());
}

/// Adds dy [slabs, terms, columns] to dx, of which `sizes` is [slabs, destinations, columns]. The destination
/// of a term is the place of its index along `axis` of an array of shape x.
void sum_into(CudaStream& stream, const Shape& sizes, const Shape& x, int axis, const ConstView& indices,
              const ConstView& dy, const GradView& dx) {
  if (dx.numel() == 0) return;
  if (dx.mode == GradMode::overwrite) fill(stream, 0, dx);
  if (dy.numel() == 0) return;
  const std::int64_t slabs = sizes[0], destinations = sizes[1], columns = sizes[2], terms = indices.numel();
  const auto invalid = static_cast<std::uint32_t>(destinations);
  const cuda::KeySort sort(stream, terms);
  launch(stream, blocks_for(terms, kGatherBlock), kGatherBlock, 0, destinations_kernel, terms,
         Places(x, indices.shape, axis), invalid, indices.as<std::int32_t>(), sort.keys());
  const cuda::SortedKeys sorted = sort.sort(stream, invalid);
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = cuda::kVectorWidth<T>;
    if (columns % kWidth == 0 && cuda::is_aligned(dy.data) && cuda::is_aligned(dx.data)) {
      launch_sums<T, kWidth>(stream, {slabs, terms, destinations, columns / kWidth}, slabs, sorted, dy, dx);
    } else {
      launch_sums<T, 1>(stream, {slabs, terms, destinations, columns}, slabs, sorted, dy, dx);
    }
  });
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
  if (dx.wanted()) sum_into(stream, dx.shape, {dx.shape[1]}, 0, indices, dy, dx);
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
  if (dx.wanted()) sum_into(stream, {1, dx.numel(), 1}, dx.shape, axis, indices, dy, dx);
}

}  // namespace convoy::kernels
