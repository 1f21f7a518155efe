#include "bench/collectives/measurement.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// At least as many collectives as a GPU communicator compares between ranks, which makes them slower
/// (comm/nccl/nccl_communicator.h).
constexpr int kComparedFirst = 32;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

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

/// Returns an integer that T represents exactly, as those of value_of() and their sums.
template <class T>
T exactly(std::int64_t value) {
  return converted<T>(static_cast<double>(value));
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
    default: break;
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

double algorithm_bandwidth(const Case& one, double seconds) {
  return seconds > 0 ? static_cast<double>(one.bytes()) / seconds : 0;
}

double bus_bandwidth(const Case& one, double seconds) {
  return algorithm_bandwidth(one, seconds) * bus_factor(one.collective, one.ranks);
}

double percentile(std::vector<double> values, double share) {
  const auto count = static_cast<double>(values.size());
  const auto at = static_cast<std::ptrdiff_t>(std::max(1.0, std::ceil(share * count))) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

CollectiveBench::CollectiveBench(const CollectivePlan& plan, dist::Communicator& measured,
                                 dist::Communicator& control, dist::MpiCollective mpi, int threads)
    : plan_(plan),
      comm_(measured),
      control_(control),
      mpi_(std::move(mpi)),
      done_(measured.stream()),
      threads_(threads) {}

std::vector<RowResult> CollectiveBench::run(const std::vector<Case>& cases,
                                            const std::function<void(const RowResult&)>& show) {
  std::int64_t max_bytes = 1;
  for (const Case& one : cases) {
    check(
        plan_.checks == 0 || largest_value(one) >= 1,
        "--check: sums over {} ranks exceed the integers that {} represents exactly; use another --datatype or "
        "--check 0",
        one.ranks, nccl_type_name(one.dtype));
    max_bytes = std::max(max_bytes, one.bytes());
  }
  CollectiveData data(comm_.context(), threads_, max_bytes);
  std::vector<RowResult> rows;
  for (const Case& one : cases) {
    if (rows.empty()) warm_up_communicator(one, data);
    RowResult row{.one = one};
    row.out_of_place = measure(one, Placement::out_of_place, data);
    row.in_place = measure(one, Placement::in_place, data);
    show(row);
    rows.push_back(row);
  }
  return rows;
}

PlacementResult CollectiveBench::measure(const Case& one, Placement placement, CollectiveData& data) {
  PlacementResult result;
  data.fill(one, placement, comm_.rank(), round_);
  for (const Side side : {Side::convoy, Side::mpi}) {
    if (side == Side::mpi && !mpi_) continue;
    for (int i = 0; i < plan_.warmup_iters; ++i) launch(side, one, placement, data);
    wait(side);
  }
  std::vector<double> own, mpi, ratios;
  for (std::int64_t round = 0; round < std::max<std::int64_t>(1, plan_.mpi_rounds); ++round) {
    own.push_back(window(Side::convoy, one, placement, data));
    if (!mpi_) continue;
    mpi.push_back(window(Side::mpi, one, placement, data));
    ratios.push_back(own.back() > 0 ? mpi.back() / own.back() : 0);
  }
  result.seconds = percentile(own, 0.5);
  if (plan_.percentiles) result.singles = time_singles(one, placement, data);
  if (plan_.checks > 0) result.wrong = check_results(Side::convoy, one, placement, data);
  if (!mpi_) return result;
  const auto [lowest, highest] = std::ranges::minmax_element(ratios);
  result.mpi = MpiBaseline{.seconds = percentile(mpi, 0.5),
                           .ratio = percentile(ratios, 0.5),
                           .lowest = *lowest,
                           .highest = *highest,
                           .rounds = plan_.mpi_rounds};
  if (plan_.checks > 0) result.mpi->wrong = check_results(Side::mpi, one, placement, data);
  return result;
}

double CollectiveBench::window(Side side, const Case& one, Placement placement, const CollectiveData& data) {
  control_.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < plan_.iters; ++i) launch(side, one, placement, data);
  wait(side);
  const double local = seconds_since(begin) / static_cast<double>(plan_.iters);
  const std::vector<double> all = gather_values(std::span(&local, 1));
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

Percentiles CollectiveBench::time_singles(const Case& one, Placement placement, const CollectiveData& data) {
  std::vector<double> local(static_cast<std::size_t>(plan_.iters));
  for (double& seconds : local) {
    control_.barrier();
    const Clock::time_point begin = Clock::now();
    launch(Side::convoy, one, placement, data);
    wait(Side::convoy);
    seconds = seconds_since(begin);
  }
  // A collective has completed when its last rank has.
  const std::vector<double> all = gather_values(local);
  std::vector<double> slowest(local.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i)
    slowest[i % local.size()] = std::max(slowest[i % local.size()], all[i]);
  return {.p50 = percentile(slowest, 0.5), .p99 = percentile(slowest, 0.99)};
}

std::int64_t CollectiveBench::check_results(Side side, const Case& one, Placement placement,
                                            CollectiveData& data) {
  double wrong = 0;
  for (int i = 0; i < plan_.checks && wrong == 0; ++i) {
    data.fill(one, placement, comm_.rank(), ++round_);
    launch(side, one, placement, data);
    wait(side);
    const ConstView in = data.in(one, placement, comm_.rank());
    // MPI stores an in-place reduce-scatter at the beginning of the input.
    const bool is_at_begin =
        side == Side::mpi && placement == Placement::in_place && one.collective == Collective::reduce_scatter;
    const ConstView result =
        is_at_begin ? dist::subview(in, 0, one.count) : ConstView(data.out(one, placement, comm_.rank()));
    const auto local = static_cast<double>(data.count_wrong(one, comm_.rank(), round_, result));
    const std::vector<double> all = gather_values(std::span(&local, 1));
    wrong = std::accumulate(all.begin(), all.end(), 0.0);
  }
  return static_cast<std::int64_t>(wrong);
}

void CollectiveBench::warm_up_communicator(const Case& one, const CollectiveData& data) {
  if (comm_.context().kind() == DeviceKind::cpu) return;
  Case small = one;
  small.count = std::min<std::int64_t>(one.count, 1);
  for (int i = 0; i < kComparedFirst; ++i) launch(Side::convoy, small, Placement::in_place, data);
  wait(Side::convoy);
}

void CollectiveBench::launch(Side side, const Case& one, Placement placement, const CollectiveData& data) {
  const View in = data.in(one, placement, comm_.rank()), out = data.out(one, placement, comm_.rank());
  const bool is_root = comm_.rank() == one.root;
  if (side == Side::mpi) {
    if (is_root) dist::copy_view(in, out);
    return mpi_(one.collective, in, out, one.root);
  }
  switch (one.collective) {
    case Collective::reduce_scatter: return comm_.reduce_scatter(in, out);
    case Collective::all_gather: return comm_.all_gather(in, out);
    case Collective::broadcast:
      if (is_root) copy(in, out);
      return comm_.broadcast(out, one.root);
    default: copy(in, out); return comm_.all_reduce(out);
  }
}

void CollectiveBench::wait(Side side) {
  if (side == Side::mpi) return;  // its functions block
  done_.record(comm_.stream());
  done_.wait();
  comm_.check_errors();
}

void CollectiveBench::copy(ConstView in, View out) {
  if (in.data == out.data) return;
  on(comm_.stream(), [&](auto& stream) {
    if constexpr (std::is_same_v<decltype(stream), CpuStream&>)
      stream.submit([in, out] { dist::copy_view(in, out); });
    else
      kernels::cast(stream, in, out);  // a cast between equal types is a copy
  });
}

std::vector<double> CollectiveBench::gather_values(std::span<const double> local) {
  const auto count = static_cast<std::int64_t>(local.size());
  std::vector<double> all(local.size() * static_cast<std::size_t>(control_.size()));
  control_.all_gather({local.data(), {count}, DType::f64},
                      {all.data(), {count * control_.size()}, DType::f64});
  control_.synchronize();
  return all;
}

}  // namespace convoy::bench
