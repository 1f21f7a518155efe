// What every communicator must do, as functions that every rank of a group runs. They know nothing of how the
// ranks came to be: threads, forked processes, mpirun.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace convoy::testing {

struct ConformanceCase {
  const char* name;
  int min_ranks;
  double timeout_seconds;  // what the communicator is to be made with
  /// On every rank, with a communicator of its own. Reports by GoogleTest's expectations.
  void (*run)(std::unique_ptr<Communicator> comm);
};

/// Collectives and their results. Each ends with finish().
std::span<const ConformanceCase> result_cases();
/// All of them but the one which says that sums go by rank: for communicators that add in another order.
std::span<const ConformanceCase> result_cases_of_any_order();
/// On the CPU: sums are of what ranks of one host have, by rank, and then of these, by host in the order of
/// their first ranks, and are rounded once.
void expect_sums_by_host(Communicator& comm, const std::vector<int>& host_of_rank);
/// Ranks that disagree, or do not come: all others end with a PeerError that says so.
std::span<const ConformanceCase> disagreement_cases();
/// A rank that leaves or gives up: the others learn it at once, where the transport can tell them.
std::span<const ConformanceCase> departure_cases();

/// How a test makes the ranks of a group: each runs `body`, and what fails in any of them fails the test.
struct Backend {
  std::string name;
  std::function<void(int ranks, const CommOptions& options,
                     const std::function<void(std::unique_ptr<Communicator>)>& body)>
      run;
};

/// One test of a backend; its parameter.
struct ConformanceRun {
  Backend backend;
  int ranks;
  ConformanceCase what;

  std::string name() const { return backend.name + "_" + std::to_string(ranks) + "_" + what.name; }
  void run() const {
    backend.run(ranks, {.timeout_seconds = what.timeout_seconds},
                [this](std::unique_ptr<Communicator> comm) { what.run(std::move(comm)); });
  }
  friend std::ostream& operator<<(std::ostream& out, const ConformanceRun& run) { return out << run.name(); }
};

/// For INSTANTIATE_TEST_SUITE_P: every case with every number of ranks that it can do with.
std::vector<ConformanceRun> conformance_runs(const Backend& backend, const std::vector<int>& ranks,
                                             std::initializer_list<std::span<const ConformanceCase>> cases);

}  // namespace convoy::testing
