#include "bench/collective_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "kernels/runtime/check.h"
#include "kernels/runtime/stream_event.h"

namespace convoy::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A communicator of GPUs compares the first collectives of each kind between the ranks, and waits for that
/// (comm/nccl_communicator.h).
constexpr int kComparedFirst = 32;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check_exact(const Case& one) {
  check(largest_value(one) >= 1,
        "--check: sums of {} ranks are more than {} has without gaps, expected another --datatype, or "
        "--check 0",
        one.ranks, nccl_name_of(one.dtype));
}

}  // namespace

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

double over_ranks(OverRanks how, std::span<const double> by_rank) {
  switch (how) {
    case OverRanks::rank_0: return by_rank.front();
    case OverRanks::mean:
      return std::accumulate(by_rank.begin(), by_rank.end(), 0.0) / static_cast<double>(by_rank.size());
    case OverRanks::least: return *std::min_element(by_rank.begin(), by_rank.end());
    case OverRanks::most: return *std::max_element(by_rank.begin(), by_rank.end());
  }
  return 0;
}

CollectiveBench::CollectiveBench(const CollectivePlan& plan, Communicator& measured, Communicator& numbers,
                                 MpiCollectives* mpi, int threads)
    : plan_(plan),
      comm_(measured),
      numbers_(numbers),
      own_(make_own_carrier(measured)),
      mpi_(mpi == nullptr ? nullptr : make_mpi_carrier(*mpi, measured.rank())),
      threads_(threads) {}

std::vector<RowResult> CollectiveBench::run(const std::vector<Case>& cases,
                                            const std::function<void(const RowResult&)>& show) {
  std::int64_t most_bytes = 1;
  for (const Case& one : cases) {
    if (plan_.checks > 0) check_exact(one);
    most_bytes = std::max(most_bytes, one.bytes());
  }
  CollectiveData data(comm_.device(), threads_, most_bytes);
  std::vector<RowResult> rows;
  for (const Case& one : cases) {
    if (rows.empty()) settle(one, data);
    RowResult row{.one = one};
    row.out_of_place = measure(one, Way::out_of_place, data);
    row.in_place = measure(one, Way::in_place, data);
    show(row);
    rows.push_back(row);
  }
  return rows;
}

WayResult CollectiveBench::measure(const Case& one, Way way, CollectiveData& data) {
  WayResult result;
  data.fill(one, way, comm_.rank(), round_);
  std::vector<Carrier*> sides = {own_.get()};
  if (mpi_) sides.push_back(mpi_.get());
  for (Carrier* side : sides) {
    for (int i = 0; i < plan_.warmup_iters; ++i) launch(*side, one, way, data);
    side->wait();
  }
  std::vector<double> own, mpi, ratios;
  for (int round = 0; round < std::max(1, plan_.mpi_rounds); ++round) {
    own.push_back(window(*own_, one, way, data));
    if (!mpi_) continue;
    mpi.push_back(window(*mpi_, one, way, data));
    ratios.push_back(own.back() > 0 ? mpi.back() / own.back() : 0);
  }
  result.seconds = percentile(own, 0.5);
  if (plan_.percentiles) result.singles = time_singles(one, way, data);
  if (plan_.checks > 0) result.wrong = check_results(*own_, one, way, data);
  if (!mpi_) return result;
  const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
  result.mpi = BesideMpi{.seconds = percentile(mpi, 0.5),
                         .ratio = percentile(ratios, 0.5),
                         .lowest = *lowest,
                         .highest = *highest,
                         .rounds = plan_.mpi_rounds};
  if (plan_.checks > 0) result.mpi->wrong = check_results(*mpi_, one, way, data);
  return result;
}

double CollectiveBench::window(Carrier& carrier, const Case& one, Way way, const CollectiveData& data) {
  numbers_.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < plan_.iters; ++i) {
    launch(carrier, one, way, data);
    if (plan_.blocking != Blocking::none) carrier.wait();
    if (plan_.blocking == Blocking::with_barrier) numbers_.barrier();
  }
  carrier.wait();
  const double mine = seconds_since(begin) / plan_.iters;
  return over_ranks(plan_.over_ranks, of_all_ranks(std::span(&mine, 1)));
}

Percentiles CollectiveBench::time_singles(const Case& one, Way way, const CollectiveData& data) {
  std::vector<double> mine(static_cast<std::size_t>(plan_.iters));
  for (double& seconds : mine) {
    numbers_.barrier();
    const Clock::time_point begin = Clock::now();
    launch(*own_, one, way, data);
    own_->wait();
    seconds = seconds_since(begin);
  }
  // A collective is over when its last rank is through.
  const std::vector<double> all = of_all_ranks(mine);
  std::vector<double> slowest(mine.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i)
    slowest[i % mine.size()] = std::max(slowest[i % mine.size()], all[i]);
  return {.p50 = percentile(slowest, 0.5), .p99 = percentile(slowest, 0.99)};
}

std::int64_t CollectiveBench::check_results(Carrier& carrier, const Case& one, Way way,
                                            CollectiveData& data) {
  double wrong = 0;
  for (int i = 0; i < plan_.checks && wrong == 0; ++i) {
    data.fill(one, way, comm_.rank(), ++round_);
    launch(carrier, one, way, data);
    carrier.wait();
    const ConstView result =
        carrier.result(one, data.in(one, way, comm_.rank()), data.out(one, way, comm_.rank()));
    const auto mine = static_cast<double>(data.count_wrong(one, comm_.rank(), round_, result));
    const std::vector<double> all = of_all_ranks(std::span(&mine, 1));
    wrong = std::accumulate(all.begin(), all.end(), 0.0);
  }
  return static_cast<std::int64_t>(wrong);
}

void CollectiveBench::settle(const Case& one, const CollectiveData& data) {
  if (comm_.device().kind() == DeviceKind::cpu) return;
  Case small = one;
  small.count = std::min<std::int64_t>(one.count, 1);
  for (int i = 0; i < kComparedFirst; ++i) launch(*own_, small, Way::in_place, data);
  own_->wait();
}

void CollectiveBench::launch(Carrier& carrier, const Case& one, Way way, const CollectiveData& data) {
  carrier.launch(one, data.in(one, way, comm_.rank()), data.out(one, way, comm_.rank()));
}

std::vector<double> CollectiveBench::of_all_ranks(std::span<const double> mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<std::size_t>(numbers_.size()));
  numbers_.all_gather({mine.data(), {count}, DType::f64},
                      {all.data(), {count * numbers_.size()}, DType::f64});
  StreamEvent done(numbers_.stream());
  done.record(numbers_.stream());
  done.wait();
  numbers_.check_errors();
  return all;
}

}  // namespace convoy::bench
