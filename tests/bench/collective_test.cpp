// Tests of the collective benchmark: sizes and bandwidths of nccl-tests, and detection of wrong results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "bench/collectives/report.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/fake_communicator.h"

namespace convoy::bench {
namespace {

using convoy::testing::FakeCommunicator;
using convoy::testing::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Collective kAll[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                               Collective::broadcast};
constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

/// Returns the plan of a command line of words, where '' is an empty one.
CollectivePlan plan_of(const std::string& flags) {
  std::vector<std::string> words = words_of("convoy-bench-allreduce " + flags);
  std::replace(words.begin(), words.end(), std::string("''"), std::string());
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  CollectiveOptions options;
  CommandLine line = collective_command_line(options);
  line.parse(static_cast<int>(arguments.size()), arguments.data());
  return make_plan(options, line);
}

std::string refusal_of(const std::string& flags) {
  return message_of<UsageError>([&] { plan_of(flags); });
}

TEST(CollectiveSizes, AcceptBinarySuffixes) {
  EXPECT_EQ(parse_bytes("-b", "8"), 8);
  EXPECT_EQ(parse_bytes("-b", "32K"), 32 << 10);
  EXPECT_EQ(parse_bytes("-b", "128m"), 128 << 20);
  EXPECT_EQ(parse_bytes("-b", "1G"), 1 << 30);
  for (const char* text : {"", "K", "8B", "8KB", "1.5M", " 8", "8 ", "0x8", "-8", "+8", "0", "0K", "1025G",
                           "99999999999999999999", "9000000000G"})
    EXPECT_THAT(message_of<UsageError>([&] { parse_bytes("--minbytes", text); }),
                HasSubstr("--minbytes: found"))
        << text;
}

TEST(CollectiveSizes, IncreaseByStepOrFactor) {
  EXPECT_THAT(sizes_between(8, 100, 1, 4), ElementsAre(8, 32));
  EXPECT_THAT(sizes_between(8, 128, 1, 4), ElementsAre(8, 32, 128));
  EXPECT_THAT(sizes_between(100, 400, 150, std::nullopt), ElementsAre(100, 250, 400));
  EXPECT_THAT(sizes_between(7, 7, 1, std::nullopt), ElementsAre(7));
}

TEST(CollectiveFlags, HaveTheDefaultsOfNcclTests) {
  const CollectivePlan plan = plan_of("");
  EXPECT_THAT(plan.sizes, ElementsAre(32 << 20));
  EXPECT_THAT(plan.collectives, ElementsAre(Collective::all_reduce));
  EXPECT_THAT(plan.dtypes, ElementsAre(DType::f32));
  EXPECT_EQ(plan.iters, 20);
  EXPECT_EQ(plan.warmup_iters, 5);
  EXPECT_EQ(plan.checks, 1);
  EXPECT_EQ(plan.root, 0);
  EXPECT_EQ(plan.mpi_rounds, 0);
  EXPECT_FALSE(plan.percentiles);
}

TEST(CollectiveFlags, HaveShortNames) {
  const CollectivePlan plan =
      plan_of("-b 8 -e4K -f 8 -n 3 -w 0 -c 2 -o sum -d bfloat16 -r all --collective broadcast,all_gather");
  EXPECT_THAT(plan.sizes, ElementsAre(8, 64, 512, 4096));
  EXPECT_TRUE(plan.is_factor);
  EXPECT_EQ(plan.step, 8);
  EXPECT_EQ(plan.iters, 3);
  EXPECT_EQ(plan.warmup_iters, 0);
  EXPECT_EQ(plan.checks, 2);
  EXPECT_THAT(plan.dtypes, ElementsAre(DType::bf16));
  EXPECT_EQ(plan.root, std::nullopt);
  EXPECT_THAT(plan.collectives, ElementsAre(Collective::broadcast, Collective::all_gather));
  EXPECT_THAT(plan_of("-b 1K -e 3K -i 1K").sizes, ElementsAre(1024, 2048, 3072));
  EXPECT_EQ(plan_of("-d all").dtypes.size(), 5U);
  EXPECT_EQ(plan_of("--beside-mpi --rounds 7 -d double").mpi_rounds, 7);
}

TEST(CollectiveFlags, RejectInvalidValuesAndCombinations) {
  EXPECT_THAT(refusal_of("-o max"), HasSubstr("--op: found 'max', expected sum"));
  EXPECT_THAT(refusal_of("-d fp32"), HasSubstr("--datatype: found 'fp32', expected float, half"));
  EXPECT_THAT(refusal_of("-b 64M"), HasSubstr("--minbytes 64M: more than --maxbytes 32M"));
  EXPECT_THAT(refusal_of("-f 2 -i 8"), HasSubstr("--stepfactor 2: found --stepbytes 8 too"));
  EXPECT_THAT(refusal_of("-f 1"), HasSubstr("--stepfactor: found 1, expected at least 2"));
  EXPECT_THAT(refusal_of("-b 1 -e 1G -i 1"), HasSubstr("--stepbytes 1: found 1073741824 sizes"));
  EXPECT_THAT(refusal_of("-n 0"), HasSubstr("--iters: found 0"));
  EXPECT_THAT(refusal_of("-a 1"), HasSubstr("-a: unknown flag"));
  EXPECT_THAT(refusal_of("-z 0"), HasSubstr("-z: unknown flag"));
  EXPECT_THAT(refusal_of("-r 1"), HasSubstr("--root 1: only broadcast has a root"));
  EXPECT_THAT(refusal_of("-r -1 --collective broadcast"), HasSubstr("--root"));
  EXPECT_THAT(refusal_of("-r x --collective broadcast"), HasSubstr("--root: found 'x'"));
  EXPECT_THAT(refusal_of("--collective all_reduc"), HasSubstr("did you mean 'all_reduce'?"));
  EXPECT_THAT(refusal_of("--collective broadcast,broadcast"), HasSubstr("found broadcast twice"));
  EXPECT_THAT(refusal_of("--collective ''"), HasSubstr("--collective: found no name"));
  EXPECT_THAT(refusal_of("--rounds 3"), HasSubstr("--rounds 3: requires --beside-mpi"));
  EXPECT_THAT(refusal_of("-y 1"), HasSubstr("-y: unknown flag"));
  EXPECT_THAT(refusal_of("-xbytes 8"), HasSubstr("unknown flag"));
  EXPECT_THAT(refusal_of("-e 99999999999999999999"),
              HasSubstr("--maxbytes: found 99999999999999999999, expected at most 1024G"));
}

TEST(CollectiveFlags, TakeThoseOfNcclTestsAsFarAsTheyMeanSomethingHere) {
  const CollectivePlan plan = plan_of("-b 8 -e 1M -f 8 -g 2 -t 2 -F table.csv");
  EXPECT_EQ(plan.ranks_per_process, 4);
  EXPECT_THAT(
      format_run_info({}, plan),
      HasSubstr(
          "# nThread 4 nGpus 1 minBytes 8 maxBytes 1048576 step: 8(factor) warmup iters: 5 iters: 20 "));
  EXPECT_EQ(plan_of("-g 1 -t 1").ranks_per_process, 1);
  EXPECT_EQ(plan_of("-g 2 --devices 2").ranks_per_process, 2);
  EXPECT_THAT(refusal_of("-g 2 --devices 3"), HasSubstr("-g 2 -t 1: 2 ranks per process, found --devices 3"));
}

TEST(CollectiveReport, TheCsvHasTheColumnsOfNcclTests) {
  RowResult row{.one = make_case(Collective::all_reduce, DType::f32, -1, 2, 8)};
  row.out_of_place.seconds = 1e-6;
  row.out_of_place.wrong = 0;
  row.in_place.seconds = 2e-6;
  const std::string text = to_csv({row});
  EXPECT_THAT(text, HasSubstr("\nsize, count, type, redop, root, time, algbw, busbw, #wrong, time,"));
  EXPECT_THAT(text,
              ::testing::EndsWith("\n8,2,float,sum,-1,1.00,0.008000,0.008000,0,2.00,0.004000,0.004000,-1\n"));
}

TEST(CollectiveFlags, RootMustBeARank) {
  const CollectivePlan third = plan_of("-r 2 -b 8 -e 8 --collective broadcast");
  EXPECT_EQ(cases_of(third, Collective::broadcast, 3).front().root, 2);
  EXPECT_THAT(message_of<UsageError>([&] { cases_of(third, Collective::broadcast, 2); }),
              HasSubstr("--root: found 2, expected a rank below the world size of 2"));
  const CollectivePlan all = plan_of("-r all -b 8 -e 16 -f 2 --collective broadcast");
  std::vector<int> roots;
  for (const Case& one : cases_of(all, Collective::broadcast, 3)) roots.push_back(one.root);
  EXPECT_THAT(roots, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_EQ(cases_of(all, Collective::all_reduce, 3).front().root, -1);
}

/// doc/PERFORMANCE.md of nccl-tests: 2(n-1)/n, (n-1)/n, (n-1)/n, 1.
TEST(CollectiveRates, FollowTheBusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
  const Case one = make_case(Collective::all_gather, DType::f32, -1, 4, 1000);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(one, 0.5), 992 / 0.5);
  EXPECT_DOUBLE_EQ(bus_bandwidth(one, 0.5), 992 / 0.5 * 0.75);
}

TEST(CollectiveCases, SizesAreThoseOfTheLargerSide) {
  const Case sum = make_case(Collective::all_reduce, DType::f32, -1, 4, 1000);
  EXPECT_EQ(sum.count, 250);
  EXPECT_EQ(sum.bytes(), 1000);
  const Case scatter = make_case(Collective::reduce_scatter, DType::f32, -1, 4, 1000);
  EXPECT_EQ(scatter.count, 62);
  EXPECT_EQ(scatter.in_count(), 248);
  EXPECT_EQ(scatter.out_count(), 62);
  EXPECT_EQ(scatter.bytes(), 992);
  const Case gather = make_case(Collective::all_gather, DType::f16, -1, 3, 7);
  EXPECT_EQ(gather.count, 1);
  EXPECT_EQ(gather.out_count(), 3);
  EXPECT_EQ(gather.bytes(), 6);
}

TEST(CollectiveNumbers, ComputePercentiles) {
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1);
  EXPECT_EQ(percentile(hundred, 0.5), 50);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
}

/// Expects exact sums in both orders of ranks, rounded after each addition.
template <class T>
void expect_exact_sums(int ranks) {
  const Case one = make_case(Collective::all_reduce, dtype_of<T>, -1, ranks, 4096);
  const std::int64_t largest = largest_value(one);
  ASSERT_GE(largest, 1);
  for (std::int64_t i = 0; i < one.count; ++i) {
    std::int64_t sum = 0;
    T up{}, down{};
    for (int rank = 0; rank < ranks; ++rank) {
      sum += value_of(rank, i, 0, largest);
      up = T(static_cast<float>(up) + static_cast<float>(value_of(rank, i, 0, largest)));
      down = T(static_cast<float>(down) + static_cast<float>(value_of(ranks - 1 - rank, i, 0, largest)));
    }
    ASSERT_EQ(static_cast<float>(up), static_cast<float>(sum)) << to_string(dtype_of<T>) << " " << i;
    ASSERT_EQ(static_cast<float>(down), static_cast<float>(sum)) << to_string(dtype_of<T>) << " " << i;
  }
}

TEST(CollectiveValues, HaveExactSums) {
  for (const int ranks : {1, 2, 7, 256}) {
    expect_exact_sums<bfloat16>(ranks);
    expect_exact_sums<float16>(ranks);
    expect_exact_sums<float>(ranks);
  }
  const Case too_many_ranks = make_case(Collective::all_reduce, DType::bf16, -1, 257, 4096);
  EXPECT_EQ(largest_value(too_many_ranks), 0);
  EXPECT_EQ(largest_value(make_case(Collective::all_gather, DType::bf16, -1, 257, 4096)), 256);
}

TEST(CollectiveValues, DifferBetweenRanksElementsAndRounds) {
  constexpr std::int64_t kLargest = 1 << 20;
  std::set<std::int64_t> found;
  for (int rank = 0; rank < 4; ++rank)
    for (std::int64_t i = 0; i < 64; ++i)
      for (std::uint32_t round = 0; round < 4; ++round) {
        const std::int64_t value = value_of(rank, i, round, kLargest);
        EXPECT_GE(value, 0);
        EXPECT_LE(value, kLargest);
        found.insert(value);
      }
  EXPECT_GT(found.size(), 1000U);  // of 1024
}

CollectivePlan quick_plan() {
  CollectivePlan plan;
  plan.sizes = {64};
  plan.iters = 2;
  plan.warmup_iters = 1;
  return plan;
}

std::vector<RowResult> run_on(dist::Communicator& measured, dist::Communicator& control,
                              const CollectivePlan& plan, const std::vector<Case>& cases) {
  CollectiveBench bench(plan, measured, control, nullptr, 1);
  return bench.run(cases, [](const RowResult&) {});
}

/// One corrupted element is counted for each collective, type and placement.
TEST(CollectiveCheck, CountsACorruptedElement) {
  for (const Collective collective : kAll)
    for (const DType dtype : kTypes) {
      for (const bool corrupts : {false, true}) {
        FakeCommunicator measured(0, 1, [&](const FakeCommunicator::Launch& launch, View data) {
          if (corrupts && launch.collective.count > 0) data.as<char>()[3 * size_of(dtype)] ^= 1;
        });
        const auto control = dist::make_self_communicator();
        CollectivePlan plan = quick_plan();
        plan.warmup_iters = 0;
        const Case one = make_case(collective, dtype, has_root(collective) ? 0 : -1, 1, 64);
        const std::vector<RowResult> rows = run_on(measured, *control, plan, {one});
        ASSERT_EQ(rows.size(), 1U);
        for (const Placement placement : kPlacements)
          EXPECT_EQ(rows[0].of(placement).wrong, corrupts ? 1 : 0)
              << to_string(collective) << " of " << to_string(dtype) << ", placement "
              << static_cast<int>(placement);
        EXPECT_EQ(count_wrong(rows), corrupts ? 2 : 0);
        EXPECT_THAT(format_footer(rows),
                    HasSubstr(corrupts ? "Out of bounds values : 2 FAILED" : "Out of bounds values : 0 OK"));
        control->finish();
      }
    }
}

/// The check detects a rank that contributes only zeros.
TEST(CollectiveCheck, DetectsMissingContributions) {
  FakeCommunicator measured(1, 2);  // behaves as if rank 0 contributed zeros
  const auto control = dist::make_self_communicator();
  const Case sum = make_case(Collective::all_reduce, DType::f32, -1, 2, 4000);
  const Case gather = make_case(Collective::all_gather, DType::f32, -1, 2, 4000);
  const Case broadcast = make_case(Collective::broadcast, DType::f32, 0, 2, 4000);
  const std::vector<RowResult> rows = run_on(measured, *control, quick_plan(), {sum, gather, broadcast});
  for (const Placement placement : kPlacements) {
    EXPECT_GE(*rows[0].of(placement).wrong, 990);  // a few of rank 0's values may be zero
    EXPECT_EQ(*rows[1].of(placement).wrong, 500);
    EXPECT_GE(*rows[2].of(placement).wrong, 990);
  }
  control->finish();
}

TEST(CollectiveCheck, IsSkippedWithCheckZero) {
  FakeCommunicator measured(0, 1, [](const FakeCommunicator::Launch& launch, View data) {
    if (launch.collective.count > 0) data.as<char>()[0] ^= 1;
  });
  const auto control = dist::make_self_communicator();
  CollectivePlan plan = quick_plan();
  plan.checks = 0;
  const std::vector<RowResult> rows =
      run_on(measured, *control, plan, {make_case(Collective::all_reduce, DType::f32, -1, 1, 64)});
  EXPECT_EQ(rows[0].in_place.wrong, std::nullopt);
  EXPECT_EQ(count_wrong(rows), 0);
  EXPECT_THAT(format_row(rows[0]), HasSubstr("N/A"));
  control->finish();
}

TEST(CollectiveCheck, RejectsSumsThatATypeCannotRepresent) {
  FakeCommunicator measured(0, 300);
  const auto control = dist::make_self_communicator();
  const Case one = make_case(Collective::all_reduce, DType::bf16, -1, 300, 64);
  EXPECT_THAT(message_of<UsageError>([&] { run_on(measured, *control, quick_plan(), {one}); }),
              HasSubstr("--check: sums over 300 ranks exceed the integers that bfloat16 represents"));
  control->finish();
}

/// Warm-up, windows, percentiles and checks are all that is launched.
TEST(CollectiveBench, LaunchesTheRequestedNumberOfCollectives) {
  FakeCommunicator measured;
  const auto control = dist::make_self_communicator();
  CollectivePlan plan = quick_plan();
  plan.iters = 7;
  plan.warmup_iters = 3;
  plan.checks = 2;
  plan.percentiles = true;
  run_on(measured, *control, plan, {make_case(Collective::all_reduce, DType::f32, -1, 1, 64)});
  EXPECT_EQ(measured.launches().size(), 2U * (3 + 7 + 7 + 2));
  control->finish();
}

/// Real ranks with every collective, type and placement, including odd and empty sizes.
TEST(CollectiveBench, IsCorrectOnThreadCommunicators) {
  constexpr int kRanks = 3;
  CollectivePlan plan = quick_plan();
  plan.percentiles = true;
  std::vector<RowResult> by_rank[kRanks];
  std::vector<std::thread> threads;
  for (auto& comm : dist::make_thread_communicators(kRanks, {.timeout_seconds = 60}))
    threads.emplace_back([&, own = std::move(comm)] {
      std::vector<Case> cases;
      for (const Collective collective : kAll)
        for (const DType dtype : kTypes)
          for (const std::int64_t bytes : {2, 1000, 4001})
            cases.push_back(make_case(collective, dtype, has_root(collective) ? 1 : -1, kRanks, bytes));
      by_rank[own->rank()] = run_on(*own, *own, plan, cases);
      own->finish();
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(by_rank[0].size(), 60U);
  for (std::size_t row = 0; row < by_rank[0].size(); ++row)
    for (const Placement placement : kPlacements) {
      const PlacementResult& result = by_rank[0][row].of(placement);
      EXPECT_EQ(result.wrong, 0) << format_row(by_rank[0][row]);
      EXPECT_GT(result.seconds, 0);
      EXPECT_LE(result.singles->p50, result.singles->p99);
      for (int rank = 1; rank < kRanks; ++rank)
        EXPECT_EQ(by_rank[rank][row].of(placement).seconds, result.seconds) << "ranks have the same results";
    }
}

RowResult sample_row() {
  RowResult row{.one = make_case(Collective::all_reduce, DType::f32, -1, 4, 1 << 20)};
  row.out_of_place = {.seconds = 1e-3, .wrong = 0};
  row.in_place = {.seconds = 5e-4, .wrong = 2};
  return row;
}

TEST(CollectiveReport, RowsHaveTheColumnsOfNcclTests) {
  EXPECT_THAT(words_of(format_row(sample_row())),
              ElementsAre("1048576", "262144", "float", "sum", "-1", "1000.0", "1.05", "1.57", "0", "500.0",
                          "2.10", "3.15", "2"));
  RowResult row = sample_row();
  row.out_of_place.singles = {.p50 = 1e-3, .p99 = 2e-2};
  row.in_place.singles = {.p50 = 2e-6, .p99 = 3e-6};
  const std::vector<std::string> words = words_of(format_row(row));
  ASSERT_EQ(words.size(), 17U);
  EXPECT_THAT(std::vector(words.begin() + 13, words.end()), ElementsAre("1000.0", "20000", "2.00", "3.00"));
}

TEST(CollectiveReport, AllLinesExceptRowsAreComments) {
  RowResult row = sample_row();
  row.in_place.mpi = MpiBaseline{
      .seconds = 4e-3, .ratio = 8, .lowest = 7.5, .highest = 9.25, .rounds = 5, .wrong = std::nullopt};
  CollectivePlan plan = quick_plan();
  plan.percentiles = true;
  const RunInfo run_info{.ranks = "2 on 1 host", .all = {dist::RankInfo{.host = "here"}}, .devices = {"cpu"}};
  std::istringstream lines(format_run_info(run_info, plan) + format_header(Collective::all_reduce, plan) +
                           format_row(row) + format_footer({row}));
  int rows = 0;
  std::string mpi;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) ++rows;
    if (line.find("MPI") != std::string::npos) mpi = line;
  }
  EXPECT_EQ(rows, 1);
  EXPECT_THAT(
      mpi, HasSubstr("in-place: MPI  4000.0 us, 8.00 times Convoy's (7.50 to 9.25, 5 rounds); #wrong N/A"));
  EXPECT_NEAR(average_bus_bandwidth({row}), (1.572864 + 3.145728) / 2, 1e-9);
}

TEST(CollectiveReport, JsonHasTheValuesOfTheTable) {
  const RunInfo run_info{
      .backend = "shm", .ranks = "2", .all = {dist::RankInfo{.host = "here"}}, .devices = {"cpu"}};
  const nlohmann::ordered_json json = json_of(run_info, quick_plan(), {sample_row()});
  EXPECT_EQ(json["backend"], "shm");
  EXPECT_EQ(json["rows"][0]["size"], 1 << 20);
  EXPECT_DOUBLE_EQ(json["rows"][0]["in_place"]["time_us"].get<double>(), 500);
  EXPECT_EQ(json["rows"][0]["in_place"]["wrong"], 2);
  EXPECT_FALSE(json["rows"][0]["in_place"].contains("mpi"));
  EXPECT_EQ(json["out_of_bounds"], 2);
  EXPECT_EQ(json["devices"][0]["host"], "here");
}

}  // namespace
}  // namespace convoy::bench
