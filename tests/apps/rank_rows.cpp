#include "tests/apps/rank_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

constexpr std::array kRanks = {1, 2, 3, 4, 8};
constexpr std::array kComms = {"mpi", "shm", "thread", "tcp"};
constexpr std::array kPrecisions = {"fp32", "fp64"};
constexpr std::array kMicroBatches = {0, 3};
constexpr std::array<Size, 3> kSizes = {{{101, 32}, {97, 13}, {64, 16}}};

void expect_close(const Outcome& found, const Outcome& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(found.losses[step], expected.losses[step], tolerance * std::abs(expected.losses[step]))
        << "step " << step + 1;
  EXPECT_NEAR(found.test_loss, expected.test_loss, tolerance * std::abs(expected.test_loss));
}

}  // namespace

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const int ranks : kRanks)
    for (const char* comm : kComms)
      for (const char* precision : kPrecisions)
        for (const int micro_batch : kMicroBatches)
          for (const Size& size : kSizes) rows.push_back({ranks, comm, precision, micro_batch, size});
  return rows;
}

std::set<std::string> pairs_of(const Row& row) {
  const std::string cells[] = {std::to_string(row.ranks), row.comm, row.precision,
                               "micro " + std::to_string(row.micro_batch),
                               "size " + std::to_string(row.size.images)};
  std::set<std::string> pairs;
  for (std::size_t a = 0; a < std::size(cells); ++a)
    for (std::size_t b = 0; b < a; ++b) pairs.insert(cells[b] + " with " + cells[a]);
  return pairs;
}

/// Greedy: repeatedly chooses the row with the maximum number of uncovered pairs.
std::vector<Row> covering_rows() {
  const std::vector<Row> all = all_rows();
  std::vector<Row> chosen;
  std::set<std::string> covered;
  while (true) {
    const Row* best = nullptr;
    std::ptrdiff_t maximum = 0;
    for (const Row& row : all) {
      const std::set<std::string> pairs = pairs_of(row);
      const auto count = std::count_if(pairs.begin(), pairs.end(),
                                       [&](const std::string& pair) { return !covered.contains(pair); });
      if (count > maximum) {
        maximum = count;
        best = &row;
      }
    }
    if (best == nullptr) return chosen;
    covered.merge(pairs_of(*best));
    chosen.push_back(*best);
  }
}

void expect_training_of_one_process(const Row& row) {
  constexpr int kTestImages = 53, kSteps = 20;
  Workshop workshop;
  write_digits(workshop.path("digits"), row.size.images, kTestImages);
  const Arguments flags = {"--batch-size", std::to_string(row.size.batch),
                           "--max-steps",  std::to_string(kSteps),
                           "--precision",  row.precision};
  Arguments micro = flags;
  if (row.micro_batch > 0) micro.insert(micro.end(), {"--micro-batch-size", std::to_string(row.micro_batch)});
  const Outcome expected = train_on(workshop, "alone", 1, "", flags);
  const Outcome found = train_on(workshop, row.name(), row.ranks, row.comm, micro);

  // LeNet has no batch norm, so only rounding differs.
  expect_close(found, expected, row.precision == "fp64" ? 1e-9 : 1e-5);
  ASSERT_EQ(expected.losses.size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(found.test_count, kTestImages);
  EXPECT_EQ(found.samples, expected.samples);
}

}  // namespace convoy::testing
