// Tests that several ranks train like a single one, with every communicator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tests/apps/rank_rows.h"
#include "tests/apps/rank_runs.h"
#include "tests/apps/trace_rules.h"

namespace convoy::testing {
namespace {

class Ranks : public ::testing::TestWithParam<Row> {};

TEST_P(Ranks, TrainLikeASingleRank) { expect_training_of_one_process(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Covering, Ranks, ::testing::ValuesIn(covering_rows()),
                         [](const auto& row) { return row.param.name(); });

TEST(RankRows, CoverAllPairsOfValues) {
  std::set<std::string> all, covered;
  for (const Row& row : all_rows()) all.merge(pairs_of(row));
  for (const Row& row : covering_rows()) covered.merge(pairs_of(row));
  EXPECT_EQ(covered, all);
}

class Repeated : public ::testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(Repeated, RunsAreBitIdentical) {
  const auto& [ranks, comm] = GetParam();
  Workshop workshop;
  const Arguments flags = {"--epochs", "1", "--deterministic", "--augment", "crop=2"};
  const Outcome first = train_on(workshop, "first", ranks, comm, flags);
  const Outcome second = train_on(workshop, "second", ranks, comm, flags);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.hash, second.hash);
}

/// Batch-norm statistics come from each rank's shard, so the numbers differ from those of a single rank. All
/// ranks still have equal parameters after every step.
TEST(Repeated, ReplicasWithBatchNormAreEqual) {
  Workshop workshop;
  for (const std::string optimizer : {"sgd", "muon"}) {
    const Arguments flags = {"--model",          "resnet20", "--batch-size",    "24",
                             "--max-steps",      "5",        "--precision",     "fp32",
                             "--check-replicas", "1",        "--deterministic", "--optimizer",
                             optimizer};
    const Outcome first = train_on(workshop, optimizer + "1", 3, "shm", flags);
    const Outcome second = train_on(workshop, optimizer + "2", 3, "shm", flags);
    EXPECT_EQ(first.losses, second.losses) << optimizer;
    EXPECT_EQ(first.hash, second.hash) << optimizer;
    EXPECT_EQ(first.test_count, 100);
  }
}

/// On the CPU, all communicators sum in rank order.
TEST(Repeated, CommunicatorsAreBitIdentical) {
  Workshop workshop;
  const Arguments flags = {"--epochs", "1", "--deterministic"};
  const Outcome expected = train_on(workshop, "thread", 3, "thread", flags);
  for (const char* comm : {"mpi", "shm", "tcp"}) {
    const Outcome found = train_on(workshop, comm, 3, comm, flags);
    EXPECT_EQ(found.losses, expected.losses) << comm;
    EXPECT_EQ(found.hash, expected.hash) << comm;
  }
}

TEST(RankFlags, GradDtypeRoundsTransferredGradients) {
  Workshop workshop;
  const Outcome exact = train_on(workshop, "fp32", 2, "shm", {"--max-steps", "10"});
  const Outcome same = train_on(workshop, "named", 2, "shm", {"--max-steps", "10", "--grad-dtype", "fp32"});
  const Outcome rounded = train_on(workshop, "bf16", 2, "shm", {"--max-steps", "10", "--grad-dtype", "bf16"});
  EXPECT_EQ(same.hash, exact.hash);
  EXPECT_NE(rounded.hash, exact.hash);
  ASSERT_EQ(rounded.losses.size(), exact.losses.size());
  EXPECT_EQ(rounded.losses.front(), exact.losses.front());  // computed before any gradient was exchanged
  // The relative error of a gradient is at most 2^-8, and ten steps reduce the loss by only a fraction of
  // itself.
  for (std::size_t step = 0; step < exact.losses.size(); ++step)
    EXPECT_NEAR(rounded.losses[step], exact.losses[step], 0x1p-8 * exact.losses.front())
        << "step " << step + 1;
}

/// Checks the timeline of all ranks and the times in the log.
TEST(RankFlags, TraceHasBucketsOfAllRanks) {
  Workshop workshop;
  const std::string trace = workshop.path("trace.json");
  train_on(workshop, "run", 3, "mpi", {"--max-steps", "4", "--bucket-mb", "0.05", "--trace", trace});
  std::map<int, int> spans;
  std::set<std::string> buckets, processes;
  EXPECT_THAT(problems_of_trace(read_text(trace)), ::testing::IsEmpty());
  const Json timeline = Json::parse(read_text(trace));
  for (const Json& event : timeline["traceEvents"]) {
    const std::string name = event["name"];
    if (name == "process_name") processes.insert(event["args"]["name"].get<std::string>().substr(0, 6));
    if (!name.starts_with("bucket ")) continue;
    ++spans[event["pid"]];
    buckets.insert(name.substr(0, name.find(" (")));
  }
  EXPECT_THAT(processes, ::testing::ElementsAre("rank 0", "rank 1", "rank 2"));
  EXPECT_GT(buckets.size(), 2U) << "for 174 KiB of gradients";
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(spans[rank], 4 * static_cast<int>(buckets.size()));
  for (const Json& step : workshop.events("run", "step")) {
    EXPECT_GT(step["comm_ms"].get<double>(), 0);
    EXPECT_LT(step["comm_ms"].get<double>() + step["data_ms"].get<double>(), step["step_ms"].get<double>());
  }
}

TEST(RankFlags, EvaluationCountsEachImageOnce) {
  Workshop workshop;
  train_on(workshop, "run", 1, "", {"--max-steps", "10", "--precision", "fp64"});
  const auto evaluate = [&](int ranks) {
    const std::string json = workshop.path("evaluation" + std::to_string(ranks));
    const Arguments arguments = {program("convoy-evaluate"),
                                 "--checkpoint",
                                 workshop.path("run"),
                                 "--device",
                                 "cpu",
                                 "--threads",
                                 "1",
                                 "--batch-size",
                                 "7",
                                 "--json",
                                 json};
    const ProcessResult result = ranks == 1 ? run_program(arguments) : run_by_mpi(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(read_text(json));
  };
  const Json alone = evaluate(1);
  for (const int ranks : {2, 3}) {
    const Json found = evaluate(ranks);
    EXPECT_EQ(found["count"], 100);
    EXPECT_EQ(found["confusion"], alone["confusion"]);
    EXPECT_NEAR(found["loss"].get<double>(), alone["loss"].get<double>(), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Repeated,
                         ::testing::Values(std::pair(2, "mpi"), std::pair(4, "shm"), std::pair(3, "thread"),
                                           std::pair(2, "tcp")),
                         [](const auto& row) {
                           return std::string(row.param.second) + std::to_string(row.param.first);
                         });

}  // namespace
}  // namespace convoy::testing
