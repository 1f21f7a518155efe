// Tests of the flight recorder and of the sentences about ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "convoy/comm/cluster/control/flight_recorder.h"
#include "convoy/comm/cluster/control/rank_status.h"
#include "convoy/kernels/base/error.h"

namespace convoy::dist {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

FlightEvent event_of(std::int64_t number) {
  FlightEvent event{.time = number, .step = 2 * number};
  event.collective.number = static_cast<std::uint64_t>(number);
  event.collective.count = number;
  return event;
}

TEST(FlightRing, KeepsTheLastEvents) {
  const auto ring = std::make_unique<FlightRing>();
  EXPECT_TRUE(ring->events().empty());
  constexpr std::int64_t kCount = 3 * FlightRing::kEvents + 17;
  for (std::int64_t number = 0; number < kCount; ++number) ring->add(event_of(number));
  const std::vector<FlightEvent> events = ring->events();
  ASSERT_EQ(events.size(), FlightRing::kEvents);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::int64_t number = kCount - static_cast<std::int64_t>(events.size() - i);
    EXPECT_EQ(events[i].time, number);
    EXPECT_EQ(events[i].step, 2 * number);
  }
}

TEST(FlightRing, ReadersSeeWholeEventsWhileThreadsAdd) {
  const auto ring = std::make_unique<FlightRing>();
  std::atomic<bool> stop = false;
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < 3; ++writer)
    writers.emplace_back([&, writer] {
      for (std::int64_t number = writer; !stop; ++number) ring->add(event_of(number));
    });
  std::size_t seen = 0;
  while (seen < 5 * FlightRing::kEvents)
    for (const FlightEvent& event : ring->events()) {
      ++seen;
      ASSERT_EQ(event.step, 2 * event.time);
      ASSERT_EQ(event.collective.count, event.time);
      ASSERT_EQ(event.collective.number, static_cast<std::uint64_t>(event.time));
    }
  stop = true;
}

TEST(FlightEvent, TruncatesText) {
  FlightEvent event;
  event.set_text(std::string(500, 'x'));
  EXPECT_EQ(std::string(event.text.data()), std::string(event.text.size() - 1, 'x'));
  event.set_text("short");
  EXPECT_STREQ(event.text.data(), "short");
}

/// Three ranks in step 17. Ranks 0 and 1 wait in an all-reduce; rank 2 has been in the data loader.
std::vector<RankStatus> three_ranks() {
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({.rank = rank,
                     .host = rank < 2 ? "a" : "b",
                     .process = 100 + rank,
                     .phase = Phase::gradients,
                     .step = 17,
                     .phase_seconds = 31});
    ranks.back().progress = {{"gradients", 418, 417}};
    if (rank < 2) ranks.back().collectives = {{"gradients", 417, "all-reduce 417 (1024 f32), bucket 3", 31}};
  }
  ranks[2].phase = Phase::data;
  ranks[2].progress = {{"gradients", 417, 417}};
  return ranks;
}

TEST(DescribeStall, NamesTheRankThatTheOthersWaitFor) {
  EXPECT_EQ(
      describe_stall(three_ranks()),
      "ranks 0, 1 wait in all-reduce 417 (1024 f32), bucket 3 (gradients): rank 2 on b has been in the data "
      "loader for 31 s (step 17)");
}

TEST(DescribeStall, TellsWhatHasHappenedToTheProcess) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[2].life = RankStatus::Life::stopped;
  EXPECT_THAT(describe_stall(ranks),
              HasSubstr("rank 2 on b is stopped by a signal (process 102); it was in the "
                        "data loader (step 17)"));
  ranks[2].life = RankStatus::Life::traced;
  EXPECT_THAT(describe_stall(ranks), HasSubstr("rank 2 on b is stopped by a debugger"));
  ranks[2].life = RankStatus::Life::dead;
  EXPECT_THAT(describe_stall(ranks),
              HasSubstr("rank 2 on b (process 102) has died; it was in the data loader"));
  ranks[2].signal = 9;
  EXPECT_THAT(describe_stall(ranks), HasSubstr("rank 2 on b was killed by signal 9 (Killed)"));
  ranks[2].life = RankStatus::Life::running;
  ranks[2].beat_seconds = 12;
  EXPECT_THAT(describe_stall(ranks), HasSubstr("rank 2 on b has not answered for 12 s"));
}

TEST(DescribeStall, NamesTheRanksThatDoNotRespondIfNoneIsInACollective) {
  std::vector<RankStatus> ranks = three_ranks();
  for (RankStatus& rank : ranks) rank.collectives.clear();
  EXPECT_THAT(describe_stall(ranks), AllOf(HasSubstr("rank 0 on a"), HasSubstr("rank 2 on b")));
  ranks[0].life = RankStatus::Life::left;
  ranks[2].life = RankStatus::Life::stopped;
  EXPECT_EQ(describe_stall(ranks),
            "rank 2 on b is stopped by a signal (process 102); it was in the data loader (step 17)");
}

TEST(DescribeStall, NamesNobodyIfAllRanksAreInTheCollective) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[2].collectives = ranks[0].collectives;
  EXPECT_EQ(
      describe_stall(ranks),
      "all ranks have been in all-reduce 417 (1024 f32), bucket 3 (gradients) for 31 s: the connections "
      "between them do not deliver it");
  ranks[2].beat_seconds = 5;
  EXPECT_THAT(describe_stall(ranks),
              HasSubstr("(gradients) for 31 s: rank 2 on b has not answered for 5.0 s"));
}

TEST(DescribeStall, LeavesOutRanksThatHavePassedTheCollective) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[1].collectives.clear();
  ranks[1].progress = {{"gradients", 419, 418}};
  EXPECT_THAT(describe_stall(ranks), HasSubstr("rank 0 waits in all-reduce 417"));
  EXPECT_THAT(describe_stall(ranks), ::testing::Not(HasSubstr("rank 1")));
}

TEST(DescribeStall, NamesOnlyTheRankThatIsStoppedAmongThoseThatAreLate) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[1].collectives.clear();
  EXPECT_THAT(describe_stall(ranks), AllOf(HasSubstr("; rank 2 on b"), HasSubstr(": rank 1 on")));
  ranks[2].life = RankStatus::Life::stopped;
  EXPECT_THAT(describe_stall(ranks), HasSubstr("(gradients): rank 2 on b is stopped by a signal"));
}

TEST(DescribeStall, NamesOneRankOfAHostThatDoesNotAnswer) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks.push_back(ranks[2]);
  ranks[3].rank = 3;
  EXPECT_THAT(describe_stall(ranks), HasSubstr("; rank 3 on b"));
  for (std::size_t late : {2, 3}) ranks[late].beat_seconds = 4;
  EXPECT_THAT(
      describe_stall(ranks),
      ::testing::EndsWith(
          "(gradients): rank 2 on b has not answered for 4.0 s; it was in the data loader (step 17)"));
}

TEST(DescribeStall, NamesNoRankThatWaitsInAnotherCollective) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks.insert(ranks.begin() + 2, ranks[1]);
  ranks[2].rank = 2;
  ranks[2].collectives = {{"statistics", 3, "gather 3", 31}};
  ranks[3].rank = 3;
  const std::string waiting = "ranks 0, 1 wait in all-reduce 417 (1024 f32), bucket 3 (gradients): ";
  // One in none, which the others wait for.
  EXPECT_EQ(describe_stall(ranks), waiting + "rank 3 on b has been in the data loader for 31 s (step 17)");
  // One that is stopped, in the collective of rank 2, or dead.
  ranks[3].collectives = ranks[2].collectives;
  ranks[3].life = RankStatus::Life::stopped;
  EXPECT_THAT(describe_stall(ranks), ::testing::StartsWith(waiting + "rank 3 on b is stopped by a signal"));
  ranks[3].life = RankStatus::Life::dead;
  EXPECT_THAT(describe_stall(ranks), ::testing::StartsWith(waiting + "rank 3 on b (process 102) has died"));
  // One that does not hold up the larger group.
  ranks[3].progress = {{"gradients", 419, 418}};
  EXPECT_THAT(describe_stall(ranks), ::testing::StartsWith(waiting + "rank 3 on b (process 102) has died"));
  // None.
  ranks[3].life = RankStatus::Life::running;
  EXPECT_EQ(describe_stall(ranks), waiting + "all ranks wait for each other in different collectives");
}

TEST(FirstCause, IsTheEarliestErrorOfARankItself) {
  std::vector<RankStatus> ranks = three_ranks();
  EXPECT_FALSE(first_cause(ranks));
  ranks[0].failure = "all-reduce 417: rank 2 has left";
  ranks[0].failed_seconds = 9;
  ranks[0].failed_by_peer = true;
  EXPECT_TRUE(first_cause(ranks)->is_consequence);
  EXPECT_EQ(first_cause(ranks)->text, describe_stall(ranks));
  ranks[2].failure = "a corrupt image";
  ranks[2].failed_seconds = 2;
  ranks[1].failure = "out of memory";
  ranks[1].failed_seconds = 3;
  EXPECT_EQ(first_cause(ranks)->text, "rank 1: out of memory (on a; it was waiting for gradients, step 17)");
  EXPECT_FALSE(first_cause(ranks)->is_consequence);
}

TEST(FirstCause, PrefersADeathToItsConsequences) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[0].failure = "all-reduce 417: rank 2 has died";
  ranks[0].failed_by_peer = true;
  ranks[2].life = RankStatus::Life::dead;
  EXPECT_EQ(first_cause(ranks)->text,
            "rank 2 on b (process 102) has died; it was in the data loader (step 17)");
}

TEST(RankStatusJson, ReturnsTheSameRanks) {
  std::vector<RankStatus> ranks = three_ranks();
  ranks[1].life = RankStatus::Life::lost;
  ranks[1].failure = "quote \" and \xff";
  ranks[2].stop_code = 3;
  ranks[2].stop_points = 12345678901;
  const std::string text = Json(ranks).dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto found = Json::parse(text).get<std::vector<RankStatus>>();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(describe_stall(found), describe_stall(ranks));
  EXPECT_EQ(found[1].life, RankStatus::Life::lost);
  EXPECT_EQ(found[2].stop_code, 3);
  EXPECT_EQ(found[2].stop_points, 12345678901U);
}

TEST(RankStatusJson, RejectsAnythingElse) {
  const Json valid = three_ranks().front();
  for (const char* text : {"null", "1", "[]", "{}", "{\"rank\":0}"})
    EXPECT_THROW(Json::parse(text).get<RankStatus>(), DataError) << text;
  Json unknown = valid;
  unknown["phase"] = "sleeping!";
  EXPECT_THROW(unknown.get<RankStatus>(), DataError) << unknown;
  for (const char* number : {"1e300", "17.5", "-99999999999999999999", "18446744073709551615"}) {
    Json large = valid;
    large["step"] = Json::parse(number);
    EXPECT_THROW(large.get<RankStatus>(), DataError) << large;
  }
}

TEST(Phases, HaveNames) {
  for (int i = 0; i <= static_cast<int>(Phase::finish); ++i)
    EXPECT_EQ(find_phase(phase_name(static_cast<Phase>(i))), static_cast<Phase>(i));
  EXPECT_FALSE(find_phase("asleep"));
}

}  // namespace
}  // namespace convoy::dist
