// The communicators of one process: alone, and between threads.
#include <gtest/gtest.h>
#include <time.h>

#include <thread>

#include "comm/self_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/comm/conformance.h"

namespace convoy::testing {
namespace {

using Body = std::function<void(std::unique_ptr<Communicator>)>;

void run_rank(std::unique_ptr<Communicator> comm, const Body& body) {
  const std::string rank = "rank " + std::to_string(comm->rank());
  try {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, rank);
    body(std::move(comm));
  } catch (const std::exception& error) {
    ADD_FAILURE() << rank << ": " << error.what();
  }
}

void run_alone(int, const CommOptions& options, const Body& body) {
  run_rank(make_self_communicator(options), body);
}

void run_threads(int ranks, const CommOptions& options, const Body& body) {
  std::vector<std::thread> threads;
  for (auto& comm : make_thread_communicators(ranks, options))
    threads.emplace_back([&body](std::unique_ptr<Communicator> own) { run_rank(std::move(own), body); },
                         std::move(comm));
  for (std::thread& thread : threads) thread.join();
}

class LocalCommunicator : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(LocalCommunicator, Conforms) { GetParam().run(); }

const auto name_of_run = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(Self, LocalCommunicator,
                         ::testing::ValuesIn(conformance_runs({"self", run_alone}, {1}, {result_cases()})),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(Thread, LocalCommunicator,
                         ::testing::ValuesIn(conformance_runs({"thread", run_threads}, {1, 2, 3, 4, 8},
                                                              {result_cases(), disagreement_cases(),
                                                               departure_cases()})),
                         name_of_run);

TEST(ThreadCommunicator, ThatWaitsTakesNoTime) {
  run_threads(3, {}, [](std::unique_ptr<Communicator> comm) {
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    comm->barrier();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(seconds, 0.2);  // of the 0.8 s that two that spin take
    comm->finish();
  });
}

TEST(ThreadCommunicator, GroupsOfNobodyAreRefused) { EXPECT_THROW(make_thread_communicators(0), UsageError); }

}  // namespace
}  // namespace convoy::testing
