#include "bench/collectives/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// At least as many collectives as a GPU communicator compares between ranks, which makes them slower
/// (comm/nccl/nccl_communicator.h).
constexpr int kComparedFirst = 32;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check_exact(const Case& one) {
  check(
      largest_value(one) >= 1,
      "--check: sums over {} ranks exceed the integers that {} represents exactly; use another --datatype or "
      "--check 0",
      one.ranks, nccl_type_name(one.dtype));
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
    case OverRanks::minimum: return *std::min_element(by_rank.begin(), by_rank.end());
    case OverRanks::maximum: return *std::max_element(by_rank.begin(), by_rank.end());
  }
  return 0;
}

CollectiveBench::CollectiveBench(const CollectivePlan& plan, dist::Communicator& measured,
                                 dist::Communicator& control, dist::MpiCollectives* mpi, int threads)
    : plan_(plan),
      comm_(measured),
      control_(control),
      own_(make_convoy_backend(measured)),
      mpi_(mpi == nullptr ? nullptr : make_mpi_backend(*mpi, measured.rank())),
      threads_(threads) {}

std::vector<RowResult> CollectiveBench::run(const std::vector<Case>& cases,
                                            const std::function<void(const RowResult&)>& show) {
  std::int64_t max_bytes = 1;
  for (const Case& one : cases) {
    if (plan_.checks > 0) check_exact(one);
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
  std::vector<Backend*> sides = {own_.get()};
  if (mpi_) sides.push_back(mpi_.get());
  for (Backend* side : sides) {
    for (int i = 0; i < plan_.warmup_iters; ++i) launch(*side, one, placement, data);
    side->wait();
  }
  std::vector<double> own, mpi, ratios;
  for (int round = 0; round < std::max(1, plan_.mpi_rounds); ++round) {
    own.push_back(window(*own_, one, placement, data));
    if (!mpi_) continue;
    mpi.push_back(window(*mpi_, one, placement, data));
    ratios.push_back(own.back() > 0 ? mpi.back() / own.back() : 0);
  }
  result.seconds = percentile(own, 0.5);
  if (plan_.percentiles) result.singles = time_singles(one, placement, data);
  if (plan_.checks > 0) result.wrong = check_results(*own_, one, placement, data);
  if (!mpi_) return result;
  const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
  result.mpi = MpiBaseline{.seconds = percentile(mpi, 0.5),
                           .ratio = percentile(ratios, 0.5),
                           .lowest = *lowest,
                           .highest = *highest,
                           .rounds = plan_.mpi_rounds};
  if (plan_.checks > 0) result.mpi->wrong = check_results(*mpi_, one, placement, data);
  return result;
}

double CollectiveBench::window(Backend& backend, const Case& one, Placement placement,
                               const CollectiveData& data) {
  control_.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < plan_.iters; ++i) {
    launch(backend, one, placement, data);
    if (plan_.blocking != Blocking::none) backend.wait();
    if (plan_.blocking == Blocking::with_barrier) control_.barrier();
  }
  backend.wait();
  const double local = seconds_since(begin) / plan_.iters;
  return over_ranks(plan_.over_ranks, gather_values(std::span(&local, 1)));
}

Percentiles CollectiveBench::time_singles(const Case& one, Placement placement, const CollectiveData& data) {
  std::vector<double> local(static_cast<std::size_t>(plan_.iters));
  for (double& seconds : local) {
    control_.barrier();
    const Clock::time_point begin = Clock::now();
    launch(*own_, one, placement, data);
    own_->wait();
    seconds = seconds_since(begin);
  }
  // A collective has completed when its last rank has.
  const std::vector<double> all = gather_values(local);
  std::vector<double> slowest(local.size(), 0);
  for (std::size_t i = 0; i < all.size(); ++i)
    slowest[i % local.size()] = std::max(slowest[i % local.size()], all[i]);
  return {.p50 = percentile(slowest, 0.5), .p99 = percentile(slowest, 0.99)};
}

std::int64_t CollectiveBench::check_results(Backend& backend, const Case& one, Placement placement,
                                            CollectiveData& data) {
  double wrong = 0;
  for (int i = 0; i < plan_.checks && wrong == 0; ++i) {
    data.fill(one, placement, comm_.rank(), ++round_);
    launch(backend, one, placement, data);
    backend.wait();
    const ConstView result =
        backend.result(one, data.in(one, placement, comm_.rank()), data.out(one, placement, comm_.rank()));
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
  for (int i = 0; i < kComparedFirst; ++i) launch(*own_, small, Placement::in_place, data);
  own_->wait();
}

void CollectiveBench::launch(Backend& backend, const Case& one, Placement placement,
                             const CollectiveData& data) {
  backend.launch(one, data.in(one, placement, comm_.rank()), data.out(one, placement, comm_.rank()));
}

std::vector<double> CollectiveBench::gather_values(std::span<const double> local) {
  const auto count = static_cast<std::int64_t>(local.size());
  std::vector<double> all(local.size() * static_cast<std::size_t>(control_.size()));
  control_.all_gather({local.data(), {count}, DType::f64},
                      {all.data(), {count * control_.size()}, DType::f64});
  Event done(control_.stream());
  done.record(control_.stream());
  done.wait();
  control_.check_errors();
  return all;
}

}  // namespace convoy::bench
