// The order of additions of each algorithm along a sparse graph, computed in one thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "convoy/comm/core/all_reduce.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/sparse_graph.h"
#include "tests/comm/device_values.h"

namespace convoy::testing {

/// Returns a value whose sums depend on their order.
inline float uneven_value(int rank, std::int64_t i) {
  const std::uint32_t bits =
      (static_cast<std::uint32_t>(i) * 2654435761U) ^ (static_cast<std::uint32_t>(rank) * 40503U * 65537U);
  return std::ldexp(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F,
                    static_cast<int>(bits >> 9) % 8);
}

template <class T>
std::vector<T> uneven_data(int rank, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(uneven_value(rank, i)));
  return values;
}

template <class Wide>
Wide tree_sum(const std::vector<Wide>& by_rank, int rank) {
  Wide sum = by_rank[static_cast<std::size_t>(rank)];
  for (const int child : dist::BinomialTree(rank, static_cast<int>(by_rank.size())).children)
    sum = sum + tree_sum(by_rank, child);
  return sum;
}

/// Returns the sum of an element of the shard of rank `shard`.
template <class Wide>
Wide sum_by(dist::AllReduce algorithm, const std::vector<Wide>& by_rank, int shard) {
  const int n = static_cast<int>(by_rank.size());
  if (algorithm == dist::AllReduce::tree) return tree_sum(by_rank, 0);
  const auto of = [n](const std::vector<Wide>& all, int rank) {
    return all[static_cast<std::size_t>((rank % n + n) % n)];
  };
  if (algorithm == dist::AllReduce::ring) {
    Wide sum = of(by_rank, shard + 1);
    for (int step = 2; step <= n; ++step) sum = of(by_rank, shard + step) + sum;
    return sum;
  }
  std::vector<Wide> sums = by_rank;  // partial ones of the element, on each rank
  const std::vector<int> halvings = dist::halvings_of(n);
  for (std::size_t step = 1; step < halvings.size(); ++step) {
    const std::vector<Wide> before = sums;
    // The ranks that keep the shard and get a partial sum of it: it is among their first (left - kept) shards.
    for (int behind = 0; behind < halvings[step - 1] - halvings[step]; ++behind) {
      const int rank = ((shard - behind) % n + n) % n;
      sums[static_cast<std::size_t>(rank)] = of(before, rank) + of(before, rank - halvings[step]);
    }
  }
  return of(sums, shard);
}

/// Expects that an all-reduce of T has the documented order of additions in Wide, and is rounded once.
template <class T, class Wide>
void expect_summed_by(dist::Communicator& comm, dist::AllReduce algorithm, std::int64_t count) {
  DeviceValues<T> data(comm, uneven_data<T>(comm.rank(), count));
  comm.all_reduce(data.view());
  const std::vector<T>& found = data.read(comm);
  std::vector<Wide> by_rank(static_cast<std::size_t>(comm.size()));
  int shard = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    while (i >= count * (shard + 1) / comm.size()) ++shard;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
      by_rank[rank] = static_cast<Wide>(static_cast<T>(uneven_value(static_cast<int>(rank), i)));
    ASSERT_EQ(static_cast<double>(static_cast<Wide>(found[static_cast<std::size_t>(i)])),
              static_cast<double>(static_cast<Wide>(static_cast<T>(sum_by(algorithm, by_rank, shard)))))
        << to_string(algorithm) << ", " << comm.size() << " ranks, element " << i << " of " << count;
  }
}

/// Does that for all types with fractions.
inline void expect_summed_in_order(dist::Communicator& comm, dist::AllReduce algorithm, std::int64_t count) {
  expect_summed_by<float, float>(comm, algorithm, count);
  expect_summed_by<double, double>(comm, algorithm, count);
  expect_summed_by<float16, float>(comm, algorithm, count);
  expect_summed_by<bfloat16, float>(comm, algorithm, count);
}

}  // namespace convoy::testing
