// Invariant 1 in rows: so many ranks, connected so, train as one process would.
#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace convoy::testing {

/// Images of the training set, and of a batch: the last batch of an epoch is short, and leaves some of 8
/// ranks without a sample.
struct Size {
  int images = 0, batch = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

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

/// The whole table.
std::vector<Row> all_rows();
/// Rows in which every two values of different columns meet.
std::vector<Row> covering_rows();
/// Every two values of different columns, as texts.
std::set<std::string> pairs_of(const Row& row);

/// LeNet for 20 steps: losses, evaluation and counts of the row are those of one process with whole batches.
void expect_training_of_one_process(const Row& row);

}  // namespace convoy::testing
