// N ranks train as one process would, whatever connects them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/apps/rank_rows.h"
#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

class Ranks : public ::testing::TestWithParam<Row> {};

TEST_P(Ranks, TrainAsOneProcess) { expect_training_of_one_process(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Covering, Ranks, ::testing::ValuesIn(covering_rows()),
                         [](const auto& row) { return row.param.name(); });

TEST(RankRows, CoverAllPairsOfValues) {
  std::set<std::string> all, covered;
  for (const Row& row : all_rows()) all.merge(pairs_of(row));
  for (const Row& row : covering_rows()) covered.merge(pairs_of(row));
  EXPECT_EQ(covered, all);
}

class Repeated : public ::testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(Repeated, TrainingsHaveTheSameBytes) {
  const auto& [ranks, comm] = GetParam();
  Workshop workshop;
  const Arguments flags = {"--epochs", "1", "--deterministic", "--augment", "crop=2"};
  const Outcome first = train_on(workshop, "first", ranks, comm, flags);
  const Outcome second = train_on(workshop, "second", ranks, comm, flags);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.hash, second.hash);
}

/// Batch norm's statistics are those of each rank's share, so the numbers are not those of one process; but
/// every rank has the same parameters after every step.
TEST(Repeated, ReplicasOfABatchNormNetAgree) {
  Workshop workshop;
  const Arguments flags = {"--model",     "resnet20", "--batch-size",     "24", "--max-steps",    "5",
                           "--precision", "fp32",     "--check-replicas", "1",  "--deterministic"};
  const Outcome first = train_on(workshop, "first", 3, "shm", flags);
  const Outcome second = train_on(workshop, "second", 3, "shm", flags);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.hash, second.hash);
  EXPECT_EQ(first.test_count, 100);
}

/// On the CPU all communicators sum in the order of ranks.
TEST(Repeated, WhateverConnectsTheRanks) {
  Workshop workshop;
  const Arguments flags = {"--epochs", "1", "--deterministic"};
  const Outcome expected = train_on(workshop, "threads", 3, "threads", flags);
  for (const char* comm : {"mpi", "shm", "gloo"}) {
    const Outcome found = train_on(workshop, comm, 3, comm, flags);
    EXPECT_EQ(found.losses, expected.losses) << comm;
    EXPECT_EQ(found.hash, expected.hash) << comm;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Repeated,
                         ::testing::Values(std::pair(2, "mpi"), std::pair(4, "shm"), std::pair(3, "threads"),
                                           std::pair(2, "gloo")),
                         [](const auto& row) {
                           return std::string(row.param.second) + std::to_string(row.param.first);
                         });

}  // namespace
}  // namespace convoy::testing
