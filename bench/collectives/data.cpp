#include "bench/collectives/data.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kGrain = 16384;  // minimum elements per thread

/// Returns the largest n such that the type represents all integers from 0 to n.
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

/// Compares bits, so that NaN is never accepted as a result. No expected sum is -0.
template <class T>
bool is_same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Returns element i of the result that a rank must have.
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
  // Multiplications propagate each input bit upwards; the shift brings the high bits down again.
  std::uint64_t bits = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15;
  bits ^= (static_cast<std::uint64_t>(rank) + 1) * 0xd1b54a32d192ed03;
  bits ^= (static_cast<std::uint64_t>(round) + 1) * 0x8cb92ba72f3d8dd7;
  bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9;
  const auto max_value = static_cast<std::uint64_t>(std::min<std::int64_t>(largest, 1 << 20));
  return static_cast<std::int64_t>(((bits >> 32) * (max_value + 1)) >> 32);
}

CollectiveData::CollectiveData(const DeviceContext& device, int threads, std::int64_t max_bytes)
    : device_(device),
      host_stream_({.threads = threads}),
      first_(Tensor::zeros({max_bytes}, DType::u8, device)),
      second_(Tensor::zeros({max_bytes}, DType::u8, device)) {}

View CollectiveData::in(const Case& one, Placement placement, int rank) const {
  const View whole = view_on(placement == Placement::in_place ? second_ : first_, one.in_count(), one.dtype);
  if (placement == Placement::out_of_place || one.collective != Collective::all_gather) return whole;
  return dist::subview(out(one, placement, rank), rank * one.count, one.count);
}

View CollectiveData::out(const Case& one, Placement placement, int rank) const {
  if (placement == Placement::in_place && one.collective == Collective::reduce_scatter)
    return dist::subview(in(one, placement, rank), rank * one.count, one.count);
  return view_on(second_, one.out_count(), one.dtype);
}

void CollectiveData::fill(const Case& one, Placement placement, int rank, std::uint32_t round) {
  const std::int64_t largest = largest_value(one);
  const View to = in(one, placement, rank);
  // On the CPU the values are written in place; for a GPU they are staged in host memory.
  const bool is_here = device_.kind() == DeviceKind::cpu;
  const Tensor staged = is_here ? Tensor() : Tensor::empty(to.shape, to.dtype, device_.host());
  const View values = is_here ? to : staged.view();
  // 0xff bytes are NaN or -1, neither of which is a valid result. In-place, they fill the shards of the other
  // ranks in the gathered output.
  on(device_.stream(), [&](auto& s) { convoy::kernels::fill(s, 255, second_.view()); });
  device_.synchronize();
  dispatch(kAllTypes, one.dtype, [&](auto zero) {
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
  dispatch(kAllTypes, one.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(host_stream_, found.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t wrong_here = 0;
      for (std::int64_t i = begin; i < end; ++i)
        wrong_here += is_same(found.as<T>()[i], exactly<T>(expected(one, rank, i, round, largest))) ? 0 : 1;
      wrong += wrong_here;
    });
  });
  return wrong;
}

}  // namespace convoy::bench
