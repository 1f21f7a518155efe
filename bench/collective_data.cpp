#include "bench/collective_data.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

#include "comm/view_parts.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/parallel.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements that are worth another thread

/// Whole numbers up to here are all there.
std::int64_t largest_exact(DType dtype) {
  switch (dtype) {
    case DType::f64: return std::int64_t{1} << 53;
    case DType::i32: return std::numeric_limits<std::int32_t>::max();
    case DType::f32: return std::int64_t{1} << 24;
    case DType::f16: return std::int64_t{1} << 11;
    case DType::bf16: return std::int64_t{1} << 8;
    case DType::u8: return 255;
  }
  return 0;
}

template <class T>
T exactly(std::int64_t value) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// By bits, and so that what is no number equals nothing: no sum here is -0.
template <class T>
bool is_same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Element i of what a rank must end up with.
std::int64_t expected(const Case& one, int rank, std::int64_t i, std::uint32_t round, std::int64_t largest) {
  switch (one.collective) {
    case Collective::broadcast: return value_of(one.root, i, round, largest);
    case Collective::all_gather:
      return value_of(static_cast<int>(i / one.count), i % one.count, round, largest);
    case Collective::all_reduce:
    case Collective::reduce_scatter: break;
  }
  const std::int64_t at = one.collective == Collective::reduce_scatter ? rank * one.count + i : i;
  std::int64_t sum = 0;
  for (int other = 0; other < one.ranks; ++other) sum += value_of(other, at, round, largest);
  return sum;
}

View view_on(const Tensor& bytes, std::int64_t count, DType dtype) {
  return {bytes.view().data, {count}, dtype};
}

}  // namespace

std::int64_t largest_value(const Case& one) {
  return largest_exact(one.dtype) / (adds(one.collective) ? one.ranks : 1);
}

std::int64_t value_of(int rank, std::int64_t i, std::uint32_t round, std::int64_t largest) {
  // Multiplication carries each bit of the three upwards, the shift brings them down again.
  std::uint64_t bits = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15;
  bits ^= (static_cast<std::uint64_t>(rank) + 1) * 0xd1b54a32d192ed03;
  bits ^= (static_cast<std::uint64_t>(round) + 1) * 0x8cb92ba72f3d8dd7;
  bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9;
  const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(largest, 1 << 20));
  return static_cast<std::int64_t>(((bits >> 32) * (most + 1)) >> 32);
}

CollectiveData::CollectiveData(const Device& device, int threads, std::int64_t most_bytes)
    : device_(device),
      host_stream_({.threads = threads}),
      first_(Tensor::zeros({most_bytes}, DType::u8, device)),
      second_(Tensor::zeros({most_bytes}, DType::u8, device)) {}

View CollectiveData::in(const Case& one, Way way, int rank) const {
  const View whole = view_on(way == Way::in_place ? second_ : first_, one.in_count(), one.dtype);
  if (way == Way::out_of_place || one.collective != Collective::all_gather) return whole;
  return part_of(out(one, way, rank), rank * one.count, one.count);
}

View CollectiveData::out(const Case& one, Way way, int rank) const {
  if (way == Way::in_place && one.collective == Collective::reduce_scatter)
    return part_of(in(one, way, rank), rank * one.count, one.count);
  return view_on(second_, one.out_count(), one.dtype);
}

void CollectiveData::fill(const Case& one, Way way, int rank, std::uint32_t round) {
  const std::int64_t largest = largest_value(one);
  const View to = in(one, way, rank);
  // On the CPU in its place; for a GPU here first.
  const bool is_here = device_.kind() == DeviceKind::cpu;
  const Tensor staged = is_here ? Tensor() : Tensor::empty(to.shape, to.dtype, device_.host());
  const View values = is_here ? to : staged.view();
  // NaN or -1, which is no result; also in place, where the rest of what is gathered lies.
  on(device_.stream(), [&](auto& s) { convoy::fill(s, 255, second_.view()); });
  device_.synchronize();
  dispatch(one.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(host_stream_, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        values.as<T>()[i] = exactly<T>(value_of(rank, i, round, largest));
    });
  });
  if (!is_here) copy_bytes(device_.host(), values, device_, to);
  device_.synchronize();
}

std::int64_t CollectiveData::count_wrong(const Case& one, int rank, std::uint32_t round,
                                         ConstView result) const {
  const std::int64_t largest = largest_value(one);
  const bool is_here = device_.kind() == DeviceKind::cpu;
  const Tensor staged = is_here ? Tensor() : Tensor::empty(result.shape, result.dtype, device_.host());
  if (!is_here) copy_bytes(device_, result, device_.host(), staged.view());
  const ConstView found = is_here ? result : ConstView(staged.view());
  std::atomic<std::int64_t> wrong = 0;
  dispatch(one.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(host_stream_, found.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t mine = 0;
      for (std::int64_t i = begin; i < end; ++i)
        mine += is_same(found.as<T>()[i], exactly<T>(expected(one, rank, i, round, largest))) ? 0 : 1;
      wrong += mine;
    });
  });
  return wrong;
}

}  // namespace convoy::bench
