// Tests of ranks that are threads of one process (--devices): shared objects and failure handling.
#include "convoy/apps/ranks/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "convoy/comm/cluster/control/flight_recorder.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr double kTimeout = 300;  // seconds; a test that waits so long has failed

TEST(Job, RecordsLargeAllocations) {
  const TempDirectory directory;
  Job job{JobOptions{}};
  job.control_plane().set_dump_directory(directory.path());
  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  job.connect(device);
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{100} << 20})
    device.memory().release(device.memory().allocate(bytes), bytes);
  job.control_plane().fail("a failure", false);
  EXPECT_EQ(job.control_plane().verdict(0), "a failure");  // returns once the file is written
  int ignored = 0;
  const std::vector<dist::FlightFile> files = dist::read_flight_files(directory.path(), ignored);
  ASSERT_EQ(files.size(), 1u);
  std::vector<std::size_t> recorded;
  for (const dist::RecordedEvent& event : files.front().events)
    if (event.kind == "allocation") recorded.push_back(std::stoull(event.text));
  EXPECT_THAT(recorded, ElementsAre(::testing::Ge(std::size_t{100} << 20)));
}

/// The exit code of the ranks, and the lines that they printed to stderr.
struct Outcome {
  int code = 0;
  std::vector<std::string> printed;
};

Outcome run_ranks(int devices, const std::function<int(Job&)>& body) {
  ::testing::internal::CaptureStderr();
  const int code = run_main("ranks", [&] {
    LocalRanks ranks({.devices = devices, .comm_timeout = kTimeout}, {.device = "cpu"});
    return ranks.run("ranks", body);
  });
  std::istringstream text(::testing::internal::GetCapturedStderr());
  Outcome outcome{.code = code, .printed = {}};
  for (std::string line; std::getline(text, line);) outcome.printed.push_back(line);
  return outcome;
}

/// Communicates until another rank fails or exits.
void wait_for_others(Job& job) {
  for (std::int32_t sum = 1;; sum = 1) dist::all_reduce_and_wait(*job.control(), {&sum, {1}, DType::i32});
}

TEST(LocalRanks, CommunicateInOneJob) {
  std::vector<std::string> seen(3);
  const Outcome outcome = run_ranks(3, [&](Job& job) {
    const auto rank = static_cast<std::size_t>(job.info().rank);
    job.connect(DeviceContext::create_cpu({.threads = 1}));
    job.run_on_rank_zero_first([] {});
    std::int32_t sum = 1 << rank;
    dist::all_reduce_and_wait(*job.control(), {&sum, {1}, DType::i32});
    seen[rank] = fmt::format("rank {} of {} on the same cores, {}, sum {}", rank, job.ranks_on_my_cores(),
                             job.describe(), sum);
    return job.is_first() ? 5 : 6;
  });
  EXPECT_EQ(outcome.code, 5) << "expected the result of rank 0";
  EXPECT_THAT(outcome.printed, IsEmpty());
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(seen[static_cast<std::size_t>(rank)],
              fmt::format("rank {} of 3 on the same cores, 3 on 1 host, thread; rendezvous: 3 threads of one "
                          "process, sum 7",
                          rank));
}

TEST(LocalRanks, OneDeviceNeedsNoThreads) {
  const Outcome outcome = run_ranks(1, [](Job& job) { return job.is_alone() && !job.in_threads() ? 0 : 1; });
  EXPECT_EQ(outcome.code, 0);
}

TEST(LocalRanks, ShareTheObjectOfMakeOnce) {
  std::atomic<int> made = 0;
  std::vector<std::shared_ptr<const std::string>> seen(4);
  run_ranks(4, [&](Job& job) {
    seen[static_cast<std::size_t>(job.info().rank)] = job.make_once<std::string>([&] {
      ++made;
      return fmt::format("by rank {}", job.info().rank);
    });
    return 0;
  });
  EXPECT_EQ(made, 1);
  EXPECT_THAT(seen, Each(seen.front()));
  EXPECT_EQ(*seen.front(), "by rank 0");
}

/// Every rank that fails prints one line with its rank. The line of the cause is the first one without any
/// wait, because the other ranks learn of the failure after it is printed.
TEST(LocalRanks, FailureOfOneRankEndsAllAndEachReportsItsOwn) {
  struct Fault {
    std::function<void()> happen;
    int code;
    std::string message;
  };
  const Fault faults[] = {
      {[] { fail<DataError>("no such image"); }, 3, "no such image"},
      {[] { throw std::bad_alloc(); }, 7, "out of memory; lower --batch-size or --micro-batch-size"},
      {[] { throw std::runtime_error("a bug"); }, 1, "a bug"},
      {[] { fail<UsageError>("--this: expected that"); }, 2, "--this: expected that"}};
  for (const Fault& fault : faults) {
    std::atomic<int> ended = 0;
    const Outcome outcome = run_ranks(3, [&](Job& job) {
      const struct Count {
        std::atomic<int>& count;
        ~Count() { ++count; }
      } count{ended};
      if (job.info().rank == 1) fault.happen();
      wait_for_others(job);
      return 0;
    });
    EXPECT_EQ(outcome.code, fault.code);
    ASSERT_THAT(outcome.printed, SizeIs(3));
    EXPECT_EQ(outcome.printed.front(), "ranks: error: [rank 1] " + fault.message);
    const auto names_cause = HasSubstr("rank 1: " + fault.message);
    EXPECT_THAT(std::vector(outcome.printed.begin() + 1, outcome.printed.end()),
                UnorderedElementsAre(AllOf(StartsWith("ranks: error: [rank 0] "), names_cause),
                                     AllOf(StartsWith("ranks: error: [rank 2] "), names_cause)));
    EXPECT_EQ(ended, 3) << "a thread still runs after the call";
  }
}

/// Ranks may wait outside a communicator: in the rendezvous, or for the object of rank 0.
TEST(LocalRanks, FailureWakesRanksInTheRendezvous) {
  for (const bool is_sharing : {false, true}) {
    const Outcome outcome = run_ranks(3, [&](Job& job) {
      if (is_sharing) {
        job.make_once<int>([]() -> int { fail<DataError>("no data"); });
      } else {
        if (job.is_first()) fail<DataError>("no data");
        job.connect(Device::cpu());
        wait_for_others(job);
      }
      return 0;
    });
    EXPECT_EQ(outcome.code, 3);
    ASSERT_THAT(outcome.printed, SizeIs(3));
    EXPECT_EQ(outcome.printed.front(), "ranks: error: [rank 0] no data");
  }
}

/// A rank that handles an error inside run() reports it before its cleanup, which may wait for the others.
TEST(LocalRanks, ReportAndAbortPrintsOnceBeforeCleanup) {
  std::atomic<int> others_failed = 0;
  const Outcome outcome = run_ranks(2, [&](Job& job) {
    if (job.is_first()) {
      try {
        wait_for_others(job);
      } catch (const PeerError&) {
        ++others_failed;
        others_failed.notify_all();
        throw;
      }
    }
    try {
      fail<DataError>("no such image");
    } catch (const std::exception&) {
      const struct Cleanup {
        std::atomic<int>& others;
        ~Cleanup() { others.wait(0); }
      } cleanup{others_failed};
      job.report_and_abort();
    }
    return 0;
  });
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.printed,
              ElementsAre("ranks: error: [rank 1] no such image",
                          AllOf(StartsWith("ranks: error: [rank 0] "), HasSubstr("rank 1: no such image"))));
}

/// A thread that hangs despite the abort.
TEST(LocalRanksDeathTest, ProcessExitsAlthoughAThreadHangs) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        LocalRanks ranks({.devices = 3, .comm_timeout = 1}, {.device = "cpu"});
        ranks.run("ranks", [](Job& job) {
          if (job.info().rank == 2) std::promise<void>().get_future().wait();
          if (job.info().rank == 1) fail<DataError>("no such image");
          wait_for_others(job);
          return 0;
        });
      },
      ::testing::ExitedWithCode(3), R"(ranks: error: \[rank 1\] no such image)");
}

TEST(LocalRanks, LostPeerWithoutCauseIsReported) {
  const Outcome outcome = run_ranks(2, [](Job& job) {
    if (!job.is_first()) return 0;  // exits without an error, while the other rank still waits
    wait_for_others(job);
    return 0;
  });
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.printed, UnorderedElementsAre(StartsWith("ranks: error: [rank 0] "),
                                                    StartsWith("ranks: error: [rank 1] ")));
}

TEST(LocalRanks, InconsistentOptionsAreReportedByAllRanks) {
  const Outcome outcome = run_ranks(3, [](Job& job) {
    job.verify_consistency({{"--lr", job.info().rank == 2 ? "0.2" : "0.1"}});
    return 0;
  });
  EXPECT_EQ(outcome.code, 2);
  const std::string message = "ranks do not agree: rank 2 has --lr 0.2, rank 0 has 0.1";
  EXPECT_THAT(outcome.printed,
              UnorderedElementsAre("ranks: error: [rank 0] " + message, "ranks: error: [rank 1] " + message,
                                   "ranks: error: [rank 2] " + message));
}

TEST(LocalRanks, WarnIfThereAreFewerCores) {
  std::vector<std::optional<std::string>> warnings(2);
  const int too_many = available_cores() + 1;
  run_ranks(too_many, [&](Job& job) {
    if (job.is_first()) warnings[1] = oversubscription_warning(job, Device::cpu());
    return 0;
  });
  run_ranks(1, [&](Job& job) {
    warnings[0] = oversubscription_warning(job, Device::cpu());
    return 0;
  });
  EXPECT_FALSE(warnings[0].has_value());
  EXPECT_THAT(warnings[1].value_or(""),
              HasSubstr(fmt::format("--devices {}: this process may use", too_many)));
}

}  // namespace
}  // namespace convoy::testing
