// The conformance tests of communicators, as functions that every rank of a group runs. They are independent
// of how the ranks were started: as threads, as forked processes or by mpirun.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"

namespace convoy::testing {

/// Returns the timeout, in seconds, of communicators in tests that wait for it: the environment variable
/// CONVOY_SHORT_TIMEOUT, by default 2. Ranks that are present must connect within it.
double short_timeout();

/// One conformance test.
struct ConformanceCase {
  const char* name;
  int min_ranks;
  double timeout_seconds;  // timeout of the communicator
  /// Runs on every rank, with that rank's communicator. Reports failures through GoogleTest expectations.
  void (*run)(std::unique_ptr<dist::Communicator> comm);
};

/// Returns the tests of collectives and their results. Each ends with finish().
std::span<const ConformanceCase> result_cases();
/// Returns result_cases() without the test of the summation order, for communicators with another order.
std::span<const ConformanceCase> result_cases_of_any_order();
/// Checks that sums on the CPU are computed within each host in rank order, then over the hosts in the order
/// of their lowest ranks, and are rounded once.
void expect_sums_by_host(dist::Communicator& comm, const std::vector<int>& host_of_rank);
/// Returns the tests of inconsistent, missing and late ranks: all other ranks throw a PeerError that names
/// them.
std::span<const ConformanceCase> disagreement_cases();
/// Returns the tests of ranks that exit or abort: the other ranks fail at once. For transports that can
/// notify them.
std::span<const ConformanceCase> departure_cases();

/// Returns the processor time that this process uses in a barrier to which rank 0 comes late. Collective
/// call.
double cpu_seconds_of_late_barrier(dist::Communicator& comm, int late_ms);

/// Makes a communicator of the calling rank. Collective call.
using MakeCommunicator = std::function<std::unique_ptr<dist::Communicator>(const dist::CommOptions&)>;

/// Runs cases on the calling rank, one after the other, each with a communicator of its own, except those
/// that need more than `size` ranks. `barrier` uses no communicator; it keeps the ranks together, because one
/// may be done with a case while the others wait for a deadline. Collective call.
void run_cases(std::span<const ConformanceCase> cases, int size, const MakeCommunicator& make,
               const std::function<void()>& barrier);

/// Starts the ranks of a group. Each rank calls `body`; a failure in any of them fails the test.
struct Backend {
  std::string name;
  std::function<void(int ranks, const std::function<void(const MakeCommunicator& make,
                                                         const std::function<void()>& barrier)>& body)>
      run;
};

/// The parameter of one test: a backend, a number of ranks, and the cases that they run.
struct ConformanceRun {
  Backend backend;
  int ranks;
  std::vector<ConformanceCase> cases;

  std::string name() const { return backend.name + "_" + std::to_string(ranks); }
  void run() const {
    backend.run(ranks, [this](const MakeCommunicator& make, const std::function<void()>& barrier) {
      run_cases(cases, ranks, make, barrier);
    });
  }
  friend std::ostream& operator<<(std::ostream& out, const ConformanceRun& run) { return out << run.name(); }
};

/// Returns all cases, for each number of ranks. For INSTANTIATE_TEST_SUITE_P.
std::vector<ConformanceRun> conformance_runs(const Backend& backend, const std::vector<int>& ranks,
                                             std::initializer_list<std::span<const ConformanceCase>> cases);

}  // namespace convoy::testing
