#include "engine/profile/profiler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace convoy {
namespace {

using Json = nlohmann::json;
using Range = Profiler::Range;

std::vector<Json> events(const Profiler& profiler, const std::string& phase) {
  std::vector<Json> found;
  const Json trace = Json::parse(profiler.chrome_trace());
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

TEST(Profiler, RecordsNothingWhileDisabled) {
  Profiler profiler;
  { const Range range(&profiler, "step"); }
  { const Range range(nullptr, "step"); }
  EXPECT_TRUE(events(profiler, "X").empty());
  EXPECT_TRUE(profiler.totals().empty());
}

TEST(Profiler, NestedRangesLieWithinEachOther) {
  Profiler profiler;
  profiler.enable(true);
  {
    const Range outer(&profiler, "step");
    const Range inner(&profiler, "forward \"conv\"\n", "kernel");
  }
  const std::vector<Json> found = events(profiler, "X");
  ASSERT_EQ(found.size(), 2u);  // in order of their ends
  const Json &inner = found[0], &outer = found[1];
  EXPECT_EQ(inner["name"], "forward \"conv\"\n");
  EXPECT_EQ(inner["cat"], "kernel");
  EXPECT_EQ(outer["name"], "step");
  EXPECT_EQ(outer["cat"], "compute");
  EXPECT_EQ(inner["tid"], outer["tid"]);
  EXPECT_GE(inner["ts"], outer["ts"]);
  // Microseconds since the start of this process's clock: 1e-3 is far above the doubles' rounding.
  EXPECT_LE(inner["ts"].get<double>() + inner["dur"].get<double>(),
            outer["ts"].get<double>() + outer["dur"].get<double>() + 1e-3);
}

TEST(Profiler, GivesEveryThreadARow) {
  Profiler profiler;
  profiler.enable(true);
  const auto work = [&](int i) {
    profiler.name_thread("worker " + std::to_string(i));
    for (int n = 0; n < 100; ++n) const Range range(&profiler, "item");
  };
  {
    const Range all(&profiler, "all");
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work, i);
  }
  std::set<int> rows;
  for (const Json& event : events(profiler, "X")) rows.insert(event["tid"].get<int>());
  EXPECT_LE(rows.size(), 5u);  // the system may give an ended thread's identity to the next
  EXPECT_GE(rows.size(), 2u);
  EXPECT_LT(*rows.rbegin(), 5);
  std::set<std::string> names;
  for (const Json& event : events(profiler, "M"))
    if (event["name"] == "thread_name") names.insert(event["args"]["name"].get<std::string>());
  EXPECT_EQ(names.size(), rows.size() - 1);

  const std::vector<Profiler::Total> totals = profiler.totals();
  ASSERT_EQ(totals.size(), 2u);
  for (const Profiler::Total& total : totals) EXPECT_EQ(total.count, total.name == "item" ? 400 : 1);
}

TEST(Profiler, LabelsTheProcess) {
  const Profiler profiler;
  const Json trace = Json::parse(profiler.chrome_trace(3, "rank 3 on node-a"));
  EXPECT_EQ(trace["traceEvents"][0]["pid"], 3);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "rank 3 on node-a");
}

TEST(Profiler, TotalsAreLargestFirst) {
  Profiler profiler;
  profiler.enable(true);
  { const Range range(&profiler, "a short one"); }
  {
    const Range range(&profiler, "long");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::vector<Profiler::Total> totals = profiler.totals();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].name, "long");
  EXPECT_GE(totals[0].ms, 5);
  EXPECT_LT(totals[1].ms, totals[0].ms);
}

TEST(Profiler, KeepsCountingWhenTheTraceIsFull) {
  Profiler profiler(10);
  profiler.enable(true);
  for (int i = 0; i < 25; ++i) const Range range(&profiler, "step");
  EXPECT_EQ(events(profiler, "X").size(), 10u);
  EXPECT_EQ(Json::parse(profiler.chrome_trace())["otherData"]["dropped_ranges"], 15);
  EXPECT_EQ(profiler.totals()[0].count, 25);
  profiler.clear();
  EXPECT_TRUE(events(profiler, "X").empty());
  EXPECT_TRUE(profiler.totals().empty());
}

TEST(Profiler, ANameThatIsNotUtf8DoesNotCostTheTrace) {
  Profiler profiler;
  profiler.enable(true);
  { const Range range(&profiler, "decode \xff.jpg"); }
  EXPECT_EQ(events(profiler, "X").size(), 1u);
}

}  // namespace
}  // namespace convoy
