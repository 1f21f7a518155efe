// Ranks as processes of their own, forked from the test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace convoy::testing {

/// What a forked rank has: who it is, and a way to exchange small texts with the others before anything else
/// works.
struct ForkedRank {
  int rank;
  int size;
  std::function<std::vector<std::string>(const std::string&)> exchange;  // all texts, by rank
  std::function<void()> wait_for_the_rest;  // once: until every other rank has called it, too, or has ended
};

/// Forks `ranks` processes that run `body`, and waits for all of them. A failed expectation or an exception
/// in one fails the test of this process, too; so does a signal that ends one, unless it is SIGKILL, which is
/// a test's own doing. None is left behind: what has not ended after `limit_seconds` is killed, and fails the
/// test. To be called where this process has no other threads. `beside` runs in this process meanwhile, and
/// gets the processes' ids.
void run_forked_ranks(int ranks, const std::function<void(const ForkedRank&)>& body,
                      const std::function<void(const std::vector<pid_t>&)>& beside = nullptr,
                      double limit_seconds = 100);

}  // namespace convoy::testing
