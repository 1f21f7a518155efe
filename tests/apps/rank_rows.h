// Cases of the invariant that training on several ranks gives the results of one process.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace convoy::testing {

/// The number of training images and the batch size. The last batch of an epoch is short and leaves some of 8
/// ranks without samples.
struct Size {
  int images = 0, batch = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

/// One case: the number of ranks, the backend and the settings of a training.
struct Row {
  int ranks = 1;
  std::string comm, precision;
  int micro_batch = 0;
  Size size;

  std::string name() const {
    return "ranks" + std::to_string(ranks) + "_" + comm + "_" + precision + "_micro" +
           std::to_string(micro_batch) + "_" + std::to_string(size.images) + "by" +
           std::to_string(size.batch);
  }
  friend std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name(); }
};

/// Returns all combinations.
std::vector<Row> all_rows();
/// Returns rows that contain every pair of values of different columns (pairwise coverage).
std::vector<Row> covering_rows();
/// Returns the pairs of values in a row, as texts.
std::set<std::string> pairs_of(const Row& row);

/// Trains LeNet for 20 steps and expects the losses, evaluation and counts of one process without
/// micro-batches.
void expect_training_of_one_process(const Row& row);

}  // namespace convoy::testing
