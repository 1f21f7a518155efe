// Chrome traces of several ranks.
#include "convoy/apps/train/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/kernels/base/error.h"
#include "tests/apps/trace_rules.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = Profiler::Clock;
using TraceJson = nlohmann::json;
using std::chrono::milliseconds;

class Trace : public ::testing::Test {
 protected:
  static void on_ranks(int ranks, const std::function<void(dist::Communicator&)>& body) {
    std::vector<std::jthread> threads;
    for (auto& comm : dist::make_thread_communicators(ranks, {.timeout_seconds = 60}))
      threads.emplace_back([&body, own = std::move(comm)] {
        try {
          body(*own);
          own->finish();
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << own->rank() << ": " << error.what();
        }
      });
  }

  std::string file() const { return (directory_.path() / "trace.json").string(); }
  std::string text() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<TraceJson> written() const { return TraceJson::parse(text())["traceEvents"]; }
  /// Returns the spans with this name by rank.
  std::map<int, std::vector<TraceJson>> spans(const std::string& name) const {
    std::map<int, std::vector<TraceJson>> found;
    for (const TraceJson& event : written())
      if (event["ph"] == "X" && event["name"] == name) found[event["pid"]].push_back(event);
    return found;
  }

  TempDirectory directory_;
};

TEST_F(Trace, HasAProcessForEachRank) {
  on_ranks(3, [&](dist::Communicator& comm) {
    Profiler profiler;
    profiler.enable(true);
    for (int step = 0; step <= comm.rank(); ++step) const Profiler::Range range(&profiler, "step");
    write_trace(profiler, &comm, file());
  });
  EXPECT_THAT(problems_of_trace(text()), IsEmpty());
  const auto steps = spans("step");
  ASSERT_EQ(steps.size(), 3u);
  for (const auto& [rank, of_rank] : steps) EXPECT_EQ(of_rank.size(), static_cast<std::size_t>(rank) + 1);
  std::vector<std::string> names;
  for (const TraceJson& event : written())
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  const std::string host = dist::this_host().name;
  EXPECT_THAT(names, ElementsAre("rank 0 on " + host, "rank 1 on " + host, "rank 2 on " + host));
}

/// A rank that starts later has the same time axis: simultaneous spans overlap.
TEST_F(Trace, TimeStartsAtACommonBarrier) {
  std::array<Clock::time_point, 3> started_after, started_before;
  on_ranks(3, [&](dist::Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::this_thread::sleep_for(milliseconds(20 * rank));
    Profiler profiler;
    profiler.enable(true);
    comm.barrier();  // bounds the time at which the barrier in start_trace() begins
    started_after[rank] = Clock::now();
    start_trace(profiler, &comm);
    started_before[rank] = Clock::now();
    {
      const Profiler::Range range(&profiler, "together");
      comm.barrier();
    }
    write_trace(profiler, &comm, file());
  });
  // The maximum delay with which a rank may leave the barrier, usually microseconds.
  const std::chrono::duration<double, std::micro> max_delay =
      *std::max_element(started_before.begin(), started_before.end()) -
      *std::min_element(started_after.begin(), started_after.end());
  double last_begin = -1e300, first_end = 1e300;
  const auto together = spans("together");
  ASSERT_EQ(together.size(), 3u);
  for (const auto& [rank, of_rank] : together) {
    ASSERT_EQ(of_rank.size(), 1u);
    const double begin = of_rank[0]["ts"], duration = of_rank[0]["dur"];
    EXPECT_GE(begin, 0);
    last_begin = std::max(last_begin, begin);
    first_end = std::min(first_end, begin + duration);
  }
  EXPECT_LE(last_begin, first_end + max_delay.count() + 1e-3);  // 1e-3 is far above rounding errors
}

TEST_F(Trace, ShowsBucketsOnASeparateRow) {
  on_ranks(2, [&](dist::Communicator& comm) {
    Profiler profiler;
    profiler.enable(true);
    start_trace(profiler, &comm);
    { const Profiler::Range range(&profiler, "backward"); }
    const Clock::time_point now = Clock::now();
    trace_buckets(profiler,
                  {{.number = 1, .bytes = 9'437'184, .begin_ms = -8, .end_ms = -5},
                   {.number = 2, .bytes = 460'000, .begin_ms = -5, .end_ms = -1.5}},
                  now);
    write_trace(profiler, &comm, file());
  });
  std::map<int, int> rows;  // the row "gradients" by rank
  for (const TraceJson& event : written())
    if (event["name"] == "thread_name" && event["args"]["name"] == "gradients")
      rows[event["pid"]] = event["tid"];
  ASSERT_EQ(rows.size(), 2u);
  const auto first = spans("bucket 1 (9.4 MB)"), second = spans("bucket 2 (0.5 MB)");
  const auto backward = spans("backward");
  ASSERT_EQ(first.size() + second.size() + backward.size(), 6u);
  for (const int rank : {0, 1}) {
    const TraceJson& one = first.at(rank).at(0);
    const TraceJson& two = second.at(rank).at(0);
    EXPECT_EQ(one["tid"], rows[rank]);
    EXPECT_EQ(two["tid"], rows[rank]);
    EXPECT_NE(backward.at(rank).at(0)["tid"], rows[rank]);
    EXPECT_EQ(one["cat"], "communication");
    EXPECT_NEAR(one["dur"].get<double>(), 3000, 1e-3);
    EXPECT_NEAR(two["dur"].get<double>(), 3500, 1e-3);
    EXPECT_NEAR(two["ts"].get<double>() - one["ts"].get<double>(), 3000, 1e-3);
  }
}

/// Traces of different lengths, longer than the pieces in which they are gathered.
TEST_F(Trace, GathersLargeTraces) {
  constexpr int kMax = 15'000;
  const auto count = [](int rank) { return rank == 1 ? kMax : 10 * rank; };
  on_ranks(3, [&](dist::Communicator& comm) {
    Profiler profiler;
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < count(comm.rank()); ++i)
      profiler.add("row", "span " + std::to_string(i), "compute", begin + milliseconds(i), milliseconds(1));
    write_trace(profiler, &comm, file());
  });
  EXPECT_GT(std::filesystem::file_size(file()),
            std::size_t{5} << 18);  // 1.25 MiB, gathered in pieces of 1 MiB
  EXPECT_THAT(problems_of_trace(text()), IsEmpty());
  std::map<int, int> next;
  for (const TraceJson& event : written()) {
    if (event["ph"] != "X") continue;
    int& number = next[event["pid"]];
    ASSERT_EQ(event["name"], "span " + std::to_string(number));
    ++number;
  }
  EXPECT_EQ(next, (std::map<int, int>{{1, count(1)}, {2, count(2)}}));
}

/// What the rules of this and other tests find in damaged traces.
TEST_F(Trace, RulesFindWhatPerfettoWouldDrop) {
  const auto problems_of = [](const std::string& events) {
    const std::vector<std::string> found = problems_of_trace(R"({"traceEvents": [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}},
        {"ph": "X", "pid": 0, "tid": 1, "name": "a", "ts": 10, "dur": 5})" +
                                                             events + "]}");
    return found.size() == 1 ? found.front() : std::to_string(found.size()) + " problems";
  };
  EXPECT_EQ(problems_of(R"(, {"ph": "X", "pid": 0, "tid": 1, "name": "b", "ts": 11, "dur": 4})"),
            "0 problems");
  EXPECT_EQ(problems_of(R"(, {"ph": "X", "pid": 0, "tid": 2, "name": "b", "ts": 11, "dur": 9})"),
            "0 problems");
  EXPECT_THAT(problems_of(R"(, {"ph": "X", "pid": 0, "tid": 1, "name": "b", "ts": 11, "dur": 5})"),
              HasSubstr("overlap in part"));
  EXPECT_THAT(problems_of(R"(, {"ph": "X", "pid": 1, "tid": 1, "name": "b", "ts": 1, "dur": 1})"),
              HasSubstr("process 1 has no name"));
  EXPECT_THAT(problems_of(R"(, {"ph": "X", "pid": 0, "tid": 1, "name": "b", "ts": -1, "dur": 1})"),
              HasSubstr("ts"));
  EXPECT_THAT(problems_of(R"(, {"ph": "X", "pid": 0, "tid": 1, "name": "b", "ts": 1})"), HasSubstr("dur"));
  EXPECT_THAT(problems_of(R"(, {"ph": "X", "pid": 0, "name": "b", "ts": 1, "dur": 1})"), HasSubstr("tid"));
  EXPECT_THAT(problems_of(R"(, {"ph": "B", "pid": 0, "tid": 1, "name": "b", "ts": 1})"),
              HasSubstr("ph is X, C, i or M"));
  EXPECT_THAT(problems_of(R"(, {"ph": "C", "pid": 0, "name": "bytes", "ts": 1, "args": {"a": "1"}})"),
              HasSubstr("counter"));
  EXPECT_THAT(problems_of(R"(, {"ph": "M", "pid": 0, "name": "thread_name", "args": {"name": "b"}})"),
              HasSubstr("tid"));
  EXPECT_THAT(problems_of_trace("[1, 2"), ::testing::SizeIs(1));
}

TEST_F(Trace, WorksWithoutACommunicator) {
  Profiler profiler;
  profiler.enable(true);
  start_trace(profiler, nullptr);
  { const Profiler::Range range(&profiler, "step"); }
  write_trace(profiler, nullptr, "");
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  write_trace(profiler, nullptr, file());
  EXPECT_EQ(spans("step").size(), 1u);
  EXPECT_THROW(write_trace(profiler, nullptr, "/proc/trace.json"), OutputError);
}

}  // namespace
}  // namespace convoy::testing
