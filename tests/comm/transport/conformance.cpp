// Conformance tests of collectives and their results.
#include "tests/comm/transport/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <optional>
#include <sstream>
#include <thread>

#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/runtime/event.h"
#include "tests/comm/device_values.h"

namespace convoy::testing {
namespace {

/// Returns a small integer, so sums over any number of ranks are exact in every type.
template <class T>
T value_at(int rank, std::int64_t index, int salt = 0) {
  const auto value = static_cast<int>((rank * 7 + index * 3 + salt) % 17);
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value - 8));
  }
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t count, int salt = 0) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(value_at<T>(rank, i, salt));
  return values;
}

template <class T>
T sum_at(int ranks, std::int64_t index, int salt = 0) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += static_cast<double>(static_cast<float>(value_at<T>(rank, index, salt)));
  return static_cast<T>(static_cast<float>(sum));
}

template <class T>
std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

template <class T>
void expect_same(const std::vector<T>& found, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(static_cast<double>(static_cast<float>(found[i])),
              static_cast<double>(static_cast<float>(expected[i])))
        << what << ", " << to_string(dtype_of<T>) << " element " << i << " of " << found.size();
}

template <class F>
void for_each_sum_type(F&& f) {
  f(float{});
  f(double{});
  f(float16{});
  f(bfloat16{});
  f(std::int32_t{});
}

/// Returns numbers of elements of type T. The largest one, which takes longest, is for f32 and f64 alone.
template <class T>
std::vector<std::int64_t> sizes_around(int ranks) {
  std::vector<std::int64_t> sizes = {0, 1, 2, 3, 17, ranks - 1, ranks, ranks + 1, 1000, 4099};
  if (std::is_same_v<T, float> || std::is_same_v<T, double>) sizes.push_back(50021);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

template <class T>
void expect_all_reduced(dist::Communicator& comm, std::int64_t count, int salt = 0) {
  DeviceValues<T> data(comm, values_of<T>(comm.rank(), count, salt));
  comm.all_reduce(data.view());
  std::vector<T> expected;
  for (std::int64_t i = 0; i < count; ++i) expected.push_back(sum_at<T>(comm.size(), i, salt));
  expect_same(data.read(comm), expected, "all-reduce");
}

void all_reduce_sums(dist::Communicator& comm) {
  for_each_sum_type([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t count : sizes_around<T>(comm.size())) expect_all_reduced<T>(comm, count);
  });
}

void reduce_scatter_sums_each_chunk(dist::Communicator& comm) {
  for_each_sum_type([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t count : sizes_around<T>(comm.size())) {
      const DeviceValues<T> in(comm, values_of<T>(comm.rank(), count * comm.size()));
      DeviceValues<T> out(comm, std::vector<T>(static_cast<std::size_t>(count)));
      comm.reduce_scatter(in.view(), out.view());
      std::vector<T> expected;
      for (std::int64_t i = 0; i < count; ++i)
        expected.push_back(sum_at<T>(comm.size(), count * comm.rank() + i));
      expect_same(out.read(comm), expected, "reduce-scatter");
    }
  });
}

template <class F>
void for_each_type(F&& f) {
  for_each_sum_type(f);
  f(std::uint8_t{});
}

void broadcast_copies_from_any_root(dist::Communicator& comm) {
  for_each_type([&](auto zero) {
    using T = decltype(zero);
    for (int root = 0; root < comm.size(); ++root)
      for (const std::int64_t count : sizes_around<T>(comm.size())) {
        DeviceValues<T> data(comm, values_of<T>(comm.rank(), count, root));
        comm.broadcast(data.view(), root);
        expect_same(data.read(comm), values_of<T>(root, count, root), "broadcast");
      }
  });
}

void all_gather_concatenates_in_rank_order(dist::Communicator& comm) {
  for_each_type([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t count : sizes_around<T>(comm.size())) {
      const DeviceValues<T> in(comm, values_of<T>(comm.rank(), count));
      DeviceValues<T> out(comm, std::vector<T>(static_cast<std::size_t>(count * comm.size())));
      comm.all_gather(in.view(), out.view());
      std::vector<T> expected;
      for (int rank = 0; rank < comm.size(); ++rank)
        for (const T value : values_of<T>(rank, count)) expected.push_back(value);
      expect_same(out.read(comm), expected, "all-gather");
    }
  });
}

void reduce_scatter_and_all_gather_work_in_place(dist::Communicator& comm) {
  for_each_sum_type([&](auto zero) {
    using T = decltype(zero);
    for (const std::int64_t count : sizes_around<T>(comm.size())) {
      DeviceValues<T> data(comm, values_of<T>(comm.rank(), count * comm.size()));
      const View local = dist::subview(data.view(), count * comm.rank(), count);
      comm.reduce_scatter(data.view(), local);
      comm.all_gather(local, data.view());
      std::vector<T> expected;
      for (std::int64_t i = 0; i < count * comm.size(); ++i) expected.push_back(sum_at<T>(comm.size(), i));
      expect_same(data.read(comm), expected, "reduce-scatter and all-gather in place");
    }
  });
}

void enqueued_collectives_keep_their_order(dist::Communicator& comm) {
  std::deque<DeviceValues<float>> results;
  DeviceValues<double> repeated(comm, {1.0});
  for (int i = 0; i < 60; ++i) {
    auto& data = results.emplace_back(comm, values_of<float>(comm.rank(), 13 * i, i));
    if (i % 3 == 0) {
      comm.all_reduce(data.view());
    } else {
      comm.broadcast(data.view(), i % comm.size());
    }
    if (i < 5) {
      comm.all_reduce(repeated.view());  // multiplies by the number of ranks, then copies from rank 0
      comm.broadcast(repeated.view(), 0);
    }
  }
  for (int i = 0; i < 60; ++i) {
    std::vector<float> expected = values_of<float>(i % comm.size(), 13 * i, i);
    if (i % 3 == 0)
      for (std::size_t e = 0; e < expected.size(); ++e)
        expected[e] = sum_at<float>(comm.size(), static_cast<std::int64_t>(e), i);
    expect_same(results[static_cast<std::size_t>(i)].read(comm), expected, "one of many");
  }
  EXPECT_EQ(repeated.read(comm)[0], std::pow(comm.size(), 5));
  EXPECT_EQ(comm.sequence_number(), 70U);
}

/// Returns values of very different magnitudes, so sums depend on the order.
template <class T>
std::vector<T> uneven_values(int rank, std::int64_t count) {
  std::uint32_t state = 12345U + 977U * static_cast<std::uint32_t>(rank);
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto mantissa = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    values.push_back(static_cast<T>(std::ldexp(mantissa, static_cast<int>(state >> 8) % 12)));
  }
  return values;
}

void all_ranks_and_repeats_have_the_same_bits(dist::Communicator& comm) {
  for_each_sum_type([&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_floating(dtype_of<T>)) {
      constexpr std::int64_t kCount = 20011;
      std::vector<std::uint8_t> first;
      for (int repeat = 0; repeat < 3; ++repeat) {
        DeviceValues<T> data(comm, uneven_values<T>(comm.rank(), kCount));
        comm.all_reduce(data.view());
        const std::vector<std::uint8_t> local = bytes_of(data.read(comm));
        if (repeat == 0) first = local;
        EXPECT_EQ(local, first) << to_string(dtype_of<T>);
        const DeviceValues<std::uint8_t> in(comm, local);
        DeviceValues<std::uint8_t> all(
            comm, std::vector<std::uint8_t>(local.size() * static_cast<std::size_t>(comm.size())));
        comm.all_gather(in.view(), all.view());
        const std::vector<std::uint8_t>& of_all = all.read(comm);
        for (std::size_t i = 0; i < of_all.size(); ++i)
          ASSERT_EQ(of_all[i], local[i % local.size()])
              << to_string(dtype_of<T>) << ", rank " << i / local.size();
      }
    }
  });
}

template <class T, class Wide>
std::vector<T> summed_by_host(const std::vector<int>& host_of_rank, std::int64_t count) {
  std::vector<int> hosts;
  for (const int host : host_of_rank)
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  std::vector<T> expected;
  std::vector<std::vector<T>> by_rank;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank)
    by_rank.push_back(uneven_values<T>(static_cast<int>(rank), count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::optional<Wide> sum;
    for (const int host : hosts) {
      std::optional<Wide> of_host;
      for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        const auto value = static_cast<Wide>(by_rank[rank][i]);
        if (host_of_rank[rank] == host) of_host = of_host ? *of_host + value : value;
      }
      sum = sum ? *sum + *of_host : *of_host;
    }
    expected.push_back(static_cast<T>(*sum));
  }
  return expected;
}

/// Only for the CPU: on GPUs NCCL chooses the order.
template <class T, class Wide>
void expect_summed_by_host(dist::Communicator& comm, const std::vector<int>& host_of_rank) {
  constexpr std::int64_t kCount = 3001;
  const std::vector<T> expected = summed_by_host<T, Wide>(host_of_rank, kCount);
  DeviceValues<T> data(comm, uneven_values<T>(comm.rank(), kCount));
  comm.all_reduce(data.view());
  EXPECT_EQ(bytes_of(data.read(comm)), bytes_of(expected)) << to_string(dtype_of<T>) << " all-reduce";

  std::vector<T> padded = uneven_values<T>(comm.rank(), kCount);
  padded.resize(static_cast<std::size_t>(kCount * comm.size()));
  // Moves the values into the chunk of the last rank.
  std::rotate(padded.begin(), padded.end() - kCount * (comm.size() - 1), padded.end());
  const DeviceValues<T> in(comm, padded);
  DeviceValues<T> out(comm, std::vector<T>(static_cast<std::size_t>(kCount)));
  comm.reduce_scatter(in.view(), out.view());
  const auto part = bytes_of(out.read(comm));
  EXPECT_EQ(part, comm.rank() == comm.size() - 1 ? bytes_of(expected)
                                                 : bytes_of(std::vector<T>(static_cast<std::size_t>(kCount))))
      << to_string(dtype_of<T>) << " reduce-scatter";
}

void sums_are_in_rank_order_and_rounded_once(dist::Communicator& comm) {
  if (comm.context().kind() != DeviceKind::cpu) return;
  expect_sums_by_host(comm, std::vector<int>(static_cast<std::size_t>(comm.size())));
}

void events_order_compute_and_communication(dist::Communicator& comm) {
  const Stream compute = comm.context().stream();
  DeviceValues<float> data(comm, values_of<float>(comm.rank(), 1001));
  Event ready(compute), done(comm.stream());
  for (int step = 0; step < 3; ++step) {
    ready.record(compute);
    ready.wait(comm.stream());
    comm.all_reduce(data.view());
    done.record(comm.stream());
    done.wait(compute);
  }
  comm.context().synchronize();
  EXPECT_TRUE(done.reached());
  comm.check_errors();
  std::vector<float> expected;
  for (std::int64_t i = 0; i < 1001; ++i)
    expected.push_back(sum_at<float>(comm.size(), i) * static_cast<float>(comm.size() * comm.size()));
  expect_same(data.read(comm), expected, "after the event");
}

std::string format_rank(int rank, std::size_t bytes) {
  return std::string(bytes, static_cast<char>('a' + rank % 26)) + std::string(1, '\0') + std::to_string(rank);
}

void gather_object_returns_strings_on_rank_0(dist::Communicator& comm) {
  for (const std::size_t bytes : {0, 1, 5000, 300000}) {
    const auto text = [&](int rank) {
      return rank % 3 == 1 && bytes == 0 ? ""
                                         : format_rank(rank, bytes * static_cast<std::size_t>(rank + 1) / 2);
    };
    const std::vector<std::string> texts = comm.gather_object(text(comm.rank()));
    if (comm.rank() != 0) {
      EXPECT_TRUE(texts.empty());
      continue;
    }
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(comm.size()));
    for (int rank = 0; rank < comm.size(); ++rank)
      EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text(rank)) << "rank " << rank << ", " << bytes;
  }
}

void barrier_waits_for_all_ranks(dist::Communicator& comm) {
  using Clock = std::chrono::steady_clock;  // the same clock in all processes of a machine
  std::this_thread::sleep_for(std::chrono::milliseconds(40 * comm.rank()));
  const auto entered = Clock::now().time_since_epoch().count();
  comm.barrier();
  const auto left = Clock::now().time_since_epoch().count();
  const std::vector<std::string> times =
      comm.gather_object(std::to_string(entered) + " " + std::to_string(left));
  if (comm.rank() != 0) return;
  std::vector<Clock::rep> all_entered, all_left;
  for (const std::string& time : times) {
    std::istringstream in(time);
    in >> all_entered.emplace_back() >> all_left.emplace_back();
  }
  EXPECT_LE(*std::max_element(all_entered.begin(), all_entered.end()),
            *std::min_element(all_left.begin(), all_left.end()));
}

void split_creates_independent_groups(dist::Communicator& comm) {
  const auto part = comm.split(comm.rank() % 2);
  EXPECT_EQ(part->rank(), comm.rank() / 2);
  EXPECT_EQ(part->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
  EXPECT_EQ(part->name(), comm.name());
  DeviceValues<float> in_part(*part, {static_cast<float>(comm.rank())});
  DeviceValues<float> in_all(comm, {static_cast<float>(comm.rank())});
  part->all_reduce(in_part.view());
  comm.all_reduce(in_all.view());
  float expected = 0;
  for (int rank = comm.rank() % 2; rank < comm.size(); rank += 2) expected += static_cast<float>(rank);
  EXPECT_EQ(in_part.read(*part)[0], expected);
  EXPECT_EQ(in_all.read(comm)[0], static_cast<float>(comm.size() * (comm.size() - 1) / 2));

  const auto alone = comm.split(comm.rank());
  EXPECT_EQ(alone->size(), 1);
  const auto copy = part->split(7);
  expect_all_reduced<float>(*copy, 100);
  alone->finish();
  copy->finish();
  part->finish();
  expect_all_reduced<float>(comm, 10);  // the original group still works
}

void invalid_arguments_do_not_affect_other_ranks(dist::Communicator& comm) {
  float value = 1;
  std::uint8_t byte = 0;
  const View data{&value, {1}, DType::f32}, raw{&byte, {1}, DType::u8};
  const View two{&value, {2 * comm.size() + 1}, DType::f32};
  EXPECT_THROW(comm.all_reduce(raw), UsageError);
  EXPECT_THROW(comm.reduce_scatter(two, data), UsageError);
  EXPECT_THROW(comm.all_gather(data, two), UsageError);
  EXPECT_THROW(comm.broadcast(data, comm.size()), UsageError);
  EXPECT_THROW(comm.broadcast(data, -1), UsageError);
  EXPECT_THROW(comm.split(-1), UsageError);
  EXPECT_EQ(comm.sequence_number(), 0U);
  expect_all_reduced<float>(comm, 10);
  comm.finish();
  comm.finish();  // does nothing
  EXPECT_THROW(comm.all_reduce(data), UsageError);
  EXPECT_THROW(comm.barrier(), UsageError);
}

template <void (*kBody)(dist::Communicator&)>
void run_and_finish(std::unique_ptr<dist::Communicator> comm) {
  kBody(*comm);
  comm->finish();
}

constexpr ConformanceCase kResults[] = {
    {"AllReduceSums", 1, 60, run_and_finish<all_reduce_sums>},
    {"ReduceScatterSumsEachChunk", 1, 60, run_and_finish<reduce_scatter_sums_each_chunk>},
    {"BroadcastCopiesFromAnyRoot", 1, 60, run_and_finish<broadcast_copies_from_any_root>},
    {"AllGatherConcatenatesInRankOrder", 1, 60, run_and_finish<all_gather_concatenates_in_rank_order>},
    {"ReduceScatterAndAllGatherWorkInPlace", 1, 60,
     run_and_finish<reduce_scatter_and_all_gather_work_in_place>},
    {"EnqueuedCollectivesKeepTheirOrder", 1, 60, run_and_finish<enqueued_collectives_keep_their_order>},
    {"AllRanksAndRepeatsHaveTheSameBits", 1, 60, run_and_finish<all_ranks_and_repeats_have_the_same_bits>},
    {"EventsOrderComputeAndCommunication", 1, 60, run_and_finish<events_order_compute_and_communication>},
    {"GatherObjectReturnsStringsOnRank0", 1, 60, run_and_finish<gather_object_returns_strings_on_rank_0>},
    {"BarrierWaitsForAllRanks", 1, 60, run_and_finish<barrier_waits_for_all_ranks>},
    {"SplitCreatesIndependentGroups", 1, 60, run_and_finish<split_creates_independent_groups>},
    {"InvalidArgumentsDoNotAffectOtherRanks", 1, 60,
     run_and_finish<invalid_arguments_do_not_affect_other_ranks>},
    // Must be the last case, see result_cases_of_any_order().
    {"SumsAreInRankOrderAndRoundedOnce", 1, 60, run_and_finish<sums_are_in_rank_order_and_rounded_once>},
};

}  // namespace

std::span<const ConformanceCase> result_cases() { return kResults; }
std::span<const ConformanceCase> result_cases_of_any_order() {
  return result_cases().first(std::size(kResults) - 1);
}

void expect_sums_by_host(dist::Communicator& comm, const std::vector<int>& host_of_rank) {
  expect_summed_by_host<float, float>(comm, host_of_rank);
  expect_summed_by_host<double, double>(comm, host_of_rank);
  expect_summed_by_host<float16, float>(comm, host_of_rank);
  expect_summed_by_host<bfloat16, float>(comm, host_of_rank);
}

double cpu_seconds_of_late_barrier(dist::Communicator& comm, int late_ms) {
  const std::clock_t before = std::clock();
  if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
  comm.barrier();
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

void run_cases(std::span<const ConformanceCase> cases, int size, const MakeCommunicator& make,
               const std::function<void()>& barrier) {
  for (const ConformanceCase& what : cases) {
    if (size < what.min_ranks) continue;
    SCOPED_TRACE(what.name);
    what.run(make({.timeout_seconds = what.timeout_seconds}));
    barrier();
  }
}

std::vector<ConformanceRun> conformance_runs(const Backend& backend, const std::vector<int>& ranks,
                                             std::initializer_list<std::span<const ConformanceCase>> cases) {
  std::vector<ConformanceRun> runs;
  for (const int count : ranks) {
    ConformanceRun& run = runs.emplace_back(ConformanceRun{backend, count, {}});
    for (const std::span<const ConformanceCase> list : cases)
      run.cases.insert(run.cases.end(), list.begin(), list.end());
  }
  return runs;
}

}  // namespace convoy::testing
