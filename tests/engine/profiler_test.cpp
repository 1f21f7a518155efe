#include "convoy/engine/profile/profiler.h"

#include <gtest/gtest.h>

#include <map>
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
}

TEST(Profiler, NestedRangesAreContainedInOuterOnes) {
  Profiler profiler;
  profiler.enable(true);
  {
    const Range outer(&profiler, "step");
    const Range inner(&profiler, "forward \"conv\"\n", "kernel");
  }
  const std::vector<Json> found = events(profiler, "X");
  ASSERT_EQ(found.size(), 2u);  // in the order in which they end
  const Json &inner = found[0], &outer = found[1];
  EXPECT_EQ(inner["name"], "forward \"conv\"\n");
  EXPECT_EQ(inner["cat"], "kernel");
  EXPECT_EQ(outer["name"], "step");
  EXPECT_EQ(outer["cat"], "compute");
  EXPECT_EQ(inner["tid"], outer["tid"]);
  EXPECT_GE(inner["ts"], outer["ts"]);
  // Microseconds since the start of the clock: 1e-3 is far above the rounding of doubles.
  EXPECT_LE(inner["ts"].get<double>() + inner["dur"].get<double>(),
            outer["ts"].get<double>() + outer["dur"].get<double>() + 1e-3);
}

TEST(Profiler, GivesEveryThreadARow) {
  Profiler profiler;
  profiler.enable(true);
  const auto work = [&] {
    for (int n = 0; n < 100; ++n) const Range range(&profiler, "item");
  };
  {
    const Range all(&profiler, "all");
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  }
  std::set<int> rows;
  for (const Json& event : events(profiler, "X")) rows.insert(event["tid"].get<int>());
  EXPECT_LE(rows.size(), 5u);  // a new thread may reuse the ID of one that has ended
  EXPECT_GE(rows.size(), 2u);
  EXPECT_LT(*rows.rbegin(), 5);

  std::map<std::string, int> counts;
  for (const Json& event : events(profiler, "X")) ++counts[event["name"]];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"all", 1}, {"item", 400}}));
}

TEST(Profiler, LabelsTheProcess) {
  const Profiler profiler;
  const Json trace = Json::parse(profiler.chrome_trace(3, "rank 3 on node-a"));
  EXPECT_EQ(trace["traceEvents"][0]["pid"], 3);
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "rank 3 on node-a");
}

TEST(Profiler, TraceCombinesProcesses) {
  Profiler first, second, empty;
  for (Profiler* profiler : {&first, &second}) profiler->enable(true);
  { const Range range(&first, "step"); }
  {
    const Range outer(&second, "step");
    const Range inner(&second, "forward");
  }
  const Json trace = Json::parse(chrome_trace_of(
      {first.trace_events(0, "rank 0"), second.trace_events(1, "rank 1"), empty.trace_events(2, "rank 2")}));
  std::map<int, int> spans, sort_index;
  std::map<int, std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    const int process = event["pid"];
    if (event["ph"] == "X") ++spans[process];
    if (event["name"] == "process_name") names[process] = event["args"]["name"];
    if (event["name"] == "process_sort_index") sort_index[process] = event["args"]["sort_index"];
  }
  EXPECT_EQ(spans, (std::map<int, int>{{0, 1}, {1, 2}}));
  EXPECT_EQ(names, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}, {2, "rank 2"}}));
  EXPECT_EQ(sort_index, (std::map<int, int>{{0, 0}, {1, 1}, {2, 2}}));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
}

TEST(Profiler, TimesAreRelativeToStartClock) {
  using std::chrono::milliseconds;
  Profiler profiler;
  std::this_thread::sleep_for(milliseconds(5));
  const Profiler::Clock::time_point before = Profiler::Clock::now();
  profiler.start_clock();
  const Profiler::Clock::time_point after = Profiler::Clock::now();
  profiler.add("gpu", "later", "compute", after + milliseconds(3), milliseconds(7));
  profiler.add("gpu", "earlier", "compute", before - milliseconds(4), milliseconds(1));
  const std::vector<Json> found = events(profiler, "X");
  ASSERT_EQ(found.size(), 2u);
  // The clock was started within this window; 1e-3 us is far above the rounding of doubles.
  const double window = std::chrono::duration<double, std::micro>(after - before).count() + 1e-3;
  EXPECT_GE(found[0]["ts"], 3000);
  EXPECT_LE(found[0]["ts"].get<double>(), 3000 + window);
  EXPECT_EQ(found[0]["dur"], 7000);
  EXPECT_LE(found[1]["ts"], -4000);
  EXPECT_GE(found[1]["ts"].get<double>(), -4000 - window);
}

TEST(Profiler, CountsRangesBeyondTheLimit) {
  Profiler profiler(10);
  profiler.enable(true);
  for (int i = 0; i < 25; ++i) const Range range(&profiler, "step");
  EXPECT_EQ(events(profiler, "X").size(), 10u);
  EXPECT_NE(profiler.chrome_trace().find("15 ranges are left out"), std::string::npos);
}

TEST(Profiler, ReplacesInvalidUtf8InNames) {
  Profiler profiler;
  profiler.enable(true);
  { const Range range(&profiler, "decode \xff.jpg"); }
  EXPECT_EQ(events(profiler, "X").size(), 1u);
}

}  // namespace
}  // namespace convoy
