// Ranks that are processes, forked from the test process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace convoy::testing {

/// The identity of a forked rank, and its means to synchronize with its peers without any code under test.
struct ForkedRank {
  int rank;
  int size;
  /// Returns the texts of all ranks, by rank. Collective; each text is shorter than 4096 bytes.
  std::function<std::vector<std::string>(const std::string&)> exchange;
  /// Blocks until every other rank has called it or has exited. Call it at most once.
  std::function<void()> wait_for_peers;
};

/// Forks `ranks` processes that run `body`, and blocks until all of them have exited. Call it while this
/// process has only one thread.
///
/// The test fails if a rank has a failed expectation, throws an exception, or is ended by a signal other than
/// SIGKILL, which tests send on purpose. A rank that has not exited after `limit_seconds` is killed and fails
/// the test. `in_parent` runs in this process meanwhile and receives the process ids.
void run_forked_ranks(int ranks, const std::function<void(const ForkedRank&)>& body,
                      const std::function<void(const std::vector<pid_t>&)>& in_parent = nullptr,
                      double limit_seconds = 100);

}  // namespace convoy::testing
