// Tests of the control plane with ranks that are threads, on one host and on several hosts that are connected
// through the loopback interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/cluster/control/control_plane.h"
#include "convoy/comm/cluster/control/flight_recorder.h"
#include "convoy/comm/cluster/control/host_agent.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/kernels/base/check.h"
#include "tests/comm/cluster/hosts_in_threads.h"
#include "tests/comm/process_size.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::dist {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TempDirectory;

struct Layout {
  int ranks, ranks_per_host;
};

/// What the ranks of a test have received. Thread-safe.
class Received {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }
  bool wait_for(std::size_t count) const {
    for (int i = 0; i < 1000 && all().size() < count; ++i) std::this_thread::sleep_for(milliseconds(10));
    return all().size() >= count;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// Runs `body` on every rank, in a thread each.
void run_ranks(const Layout& layout, const ControlOptions& options,
               const std::function<void(JobControl&, Rendezvous&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rendezvous : rendezvous_in_threads(layout.ranks, 30))
    threads.emplace_back([&, own = std::move(rendezvous)]() mutable {
      HostsInThreads hosts(std::move(own), layout.ranks_per_host);
      try {
        const auto plane = connect_control_plane(hosts, options);
        body(*plane, hosts);
        hosts.barrier();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << hosts.info().rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

class Planes : public ::testing::TestWithParam<Layout> {};

TEST_P(Planes, AllRanksStopAtTheSamePointWithTheSmallestCode) {
  for (unsigned trial = 0; trial < 5; ++trial) {
    std::vector<int> stops(static_cast<std::size_t>(GetParam().ranks));
    Received codes;
    run_ranks(GetParam(), {.timeout_seconds = 30}, [&](JobControl& plane, Rendezvous& rendezvous) {
      const int rank = rendezvous.info().rank;
      std::mt19937 random(100 * trial + static_cast<unsigned>(rank));
      // Two ranks have a code. The ranks are not coupled, so they are at quite different points.
      const int code = rank == GetParam().ranks - 1 ? 2 : (rank == 1 ? 5 : 0);
      const auto from = 20 + random() % 30;
      for (int point = 1; point < 100000; ++point) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        const int agreed = plane.stop_code(static_cast<unsigned>(point) >= from ? code : 0);
        if (agreed == 0) continue;
        stops[static_cast<std::size_t>(rank)] = point;
        codes.add(std::to_string(agreed));
        break;
      }
    });
    EXPECT_GT(stops.front(), 0);
    EXPECT_THAT(stops, Each(stops.front()));
    EXPECT_THAT(codes.all(), AllOf(SizeIs(stops.size()), Each(codes.all().front())));
    EXPECT_THAT(codes.all().front(), ::testing::AnyOf("2", "5"));  // 5 if it was decided before 2 came
  }
}

TEST_P(Planes, RankZeroReceivesTheWarningsOfOtherRanks) {
  Received warnings;
  run_ranks(GetParam(), {.on_warning = [&](const std::string& text) { warnings.add(text); }},
            [&](JobControl& plane, Rendezvous& rendezvous) {
              const int rank = rendezvous.info().rank, last = GetParam().ranks - 1;
              plane.warn("the batches are small");  // rank 0 prints it by itself
              if (rank == 1 || rank == last) plane.warn("the disk is slow");
              if (rank == last)
                for (int i = 0; i < 20; ++i) plane.warn(fmt::format("number {}", i));
              EXPECT_TRUE(warnings.wait_for(7));
            });
  const std::string last = std::to_string(GetParam().ranks - 1);
  EXPECT_THAT(
      warnings.all(),
      ::testing::UnorderedElementsAre(
          last == "1" ? "rank 1: the disk is slow" : "ranks 1, " + last + ": the disk is slow",
          "rank " + last + ": number 0", "rank " + last + ": number 1", "rank " + last + ": number 2",
          "rank " + last + ": number 3", "rank " + last + ": number 4", "rank " + last + ": number 5"));
}

TEST_P(Planes, EveryRankLearnsTheFirstCause) {
  Received verdicts;
  const int failing = GetParam().ranks - 1;
  run_ranks(GetParam(), {.on_verdict = [&](const std::string& text) { verdicts.add(text); }},
            [&](JobControl& plane, Rendezvous& rendezvous) {
              plane.enter(Phase::save);
              plane.set_step(17);
              if (rendezvous.info().rank == 0) plane.fail("rank 1 does not answer", true);
              if (rendezvous.info().rank == failing) plane.fail("the disk is full", false);
              EXPECT_TRUE(verdicts.wait_for(static_cast<std::size_t>(GetParam().ranks)));
            });
  EXPECT_THAT(verdicts.all(),
              Each(AllOf(HasSubstr(fmt::format("rank {}: the disk is full", failing)),
                         HasSubstr(fmt::format("on host-{}", failing / GetParam().ranks_per_host)),
                         HasSubstr("it was saving a checkpoint, step 17"))));
}

/// The network of the first host fails for a while, and then what the others have sent arrives one by one.
TEST(ControlPlane, ARootThatHearsOfNoHostDoesNotTakeThatForTheirSilence) {
  using std::chrono::steady_clock;
  std::vector<std::thread> threads;
  for (auto& rendezvous : rendezvous_in_threads(3, 30))
    threads.emplace_back([own = std::move(rendezvous)]() mutable {
      HostsInThreads hosts(std::move(own), 1);
      const int rank = hosts.info().rank;
      HostMemory memory(hosts);
      memory.mine().state = RankSlot::State::running;
      HostAgent agent(memory, hosts.all(), AgentTree::connect(hosts, Deadline(30)),
                      {.host_timeout_seconds = 3});
      hosts.barrier();
      const auto begin = steady_clock::now();
      const auto serve = [&](milliseconds from, milliseconds to) {
        std::this_thread::sleep_until(begin + from);
        while (steady_clock::now() < begin + to) {
          std::this_thread::sleep_for(milliseconds(5));
          memory.mine().beat = steady_nanoseconds();
          agent.serve();
        }
      };
      if (rank == 0) {
        serve(milliseconds(0), milliseconds(4000));
      } else {
        serve(milliseconds(0), milliseconds(300));
        serve(milliseconds(rank == 1 ? 1500 : 3600), milliseconds(4000));
      }
      EXPECT_EQ(memory.get(kVerdict), "") << "rank " << rank;
      hosts.barrier();
      memory.mine().state = RankSlot::State::left;
      agent.leave();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ControlPlane, LeavesNothing) {
  run_ranks({2, 1}, {}, [](JobControl&, Rendezvous& rendezvous) {
    const auto join = [&] {
      rendezvous.barrier();  // the other rank is between two planes while this one is measured
      connect_control_plane(rendezvous, {})->enter(Phase::forward);
      rendezvous.barrier();
    };
    if (rendezvous.info().rank == 0) {
      testing::expect_no_growth(200, join);
    } else {
      for (int i = 0; i < 200; ++i) join();
    }
  });
}

TEST_P(Planes, LeavingIsNoFailure) {
  Received verdicts;
  run_ranks(GetParam(), {.on_verdict = [&](const std::string& text) { verdicts.add(text); }},
            [](JobControl& plane, Rendezvous& rendezvous) {
              if (rendezvous.info().rank % 2 == 0) plane.leave();
              std::this_thread::sleep_for(milliseconds(300));
            });
  EXPECT_THAT(verdicts.all(), SizeIs(0));
}

TEST_P(Planes, AWarningNamesTheRankThatHoldsUpTheOthers) {
  Received warnings;
  const int late = GetParam().ranks - 1;
  run_ranks(GetParam(),
            {.warn_after_seconds = 1.2, .on_warning = [&](const std::string& text) { warnings.add(text); }},
            [&](JobControl& plane, Rendezvous& rendezvous) {
              const auto monitor = plane.monitor("gradients");
              plane.set_step(3);
              plane.enter(Phase::data);
              const CollectiveSignature sum{
                  .number = 7, .op = CollectiveOp::all_reduce, .bucket = 2, .count = 10};
              if (rendezvous.info().rank != late) {
                monitor->launched(sum);
                monitor->started(sum);
              }
              EXPECT_TRUE(warnings.wait_for(1));
            });
  EXPECT_THAT(
      warnings.all().front(),
      AllOf(HasSubstr("no rank has made progress for"), HasSubstr("all-reduce 7"), HasSubstr("bucket 2"),
            HasSubstr(fmt::format(": rank {} on host-{} has been in the data loader for", late,
                                  late / GetParam().ranks_per_host))));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Planes,
                         ::testing::Values(Layout{4, 4}, Layout{4, 2}, Layout{3, 1}, Layout{40, 1}),
                         [](const auto& test) {
                           return fmt::format("{}Ranks{}PerHost", test.param.ranks,
                                              test.param.ranks_per_host);
                         });

/// Runs an all-reduce with a timeout of half a second, for which rank 0 comes 1.5 s late because it is in
/// `phase`. Rank 1 waits for it in the phase `waiting`. Returns the error of rank 1; an empty string if there
/// is none.
std::string error_of_late_sum(Phase phase, Phase waiting = Phase::gradients) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::mutex mutex;
  std::string error;
  auto threads = rendezvous_in_threads(2, 30);
  std::vector<std::thread> ranks;
  for (auto& rendezvous : threads)
    ranks.emplace_back([&, own = std::move(rendezvous)]() mutable {
      try {
        const auto plane = connect_control_plane(*own, {.timeout_seconds = 0.5});
        const auto comm = make_thread_communicator(*own, {.timeout_seconds = 0.5,
                                                          .deadline_floor = plane->deadline_floor(),
                                                          .monitor = plane->monitor("control")});
        if (own->info().rank == 1) plane->enter(waiting);
        if (own->info().rank == 0) {
          const PhaseScope scope(plane.get(), phase);
          std::this_thread::sleep_for(milliseconds(1500));
        }
        comm->barrier();
        comm->finish();
      } catch (const std::exception& failure) {
        const std::lock_guard lock(mutex);
        error = failure.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  return error;
}

TEST(Deadlines, DoNotPassWhileARankSaves) {
  EXPECT_EQ(error_of_late_sum(Phase::save), "");
  EXPECT_EQ(error_of_late_sum(Phase::data), "");
}

/// A rank that waits in a collective of a save is no rank that saves.
TEST(Deadlines, PassWhileARankWaitsInACollectiveOfASave) {
  EXPECT_THAT(error_of_late_sum(Phase::forward, Phase::save), HasSubstr("waited 0.5 s for rank 0"));
}

TEST(Deadlines, PassWhileARankComputes) {
  EXPECT_THAT(error_of_late_sum(Phase::forward), HasSubstr("waited 0.5 s for rank 0"));
}

TEST(FlightFiles, AreWrittenForAllRanksWhenAJobFails) {
  const TempDirectory directory;
  const auto place = directory.path() / "out" / "post-mortem";
  for (int job = 0; job < 2; ++job)  // the second one replaces the files of the first one
    run_ranks({3 - job, 2}, {}, [&](JobControl& plane, Rendezvous& rendezvous) {
      plane.set_dump_directory(place);
      plane.set_step(5);
      plane.enter(Phase::backward);
      plane.warn("a warning");
      plane.allocation_recorder()(std::size_t{80} << 20);
      rendezvous.barrier();
      if (rendezvous.info().rank == 1) plane.fail("out of memory", false);
      EXPECT_THAT(plane.verdict(10), HasSubstr("rank 1: out of memory"));
    });
  int ignored = 0;
  const std::vector<FlightFile> files = read_flight_files(place, ignored);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(ignored, 1);  // of rank 2 of the first job
  EXPECT_EQ(files[1].status.failure, "out of memory");
  EXPECT_EQ(files[0].world_size, 2);
  EXPECT_THAT(files[0].verdict, HasSubstr("rank 1: out of memory"));
  ASSERT_GE(files[0].events.size(), 4U);
  EXPECT_EQ(files[0].events[1].kind, "phase");
  EXPECT_EQ(files[0].events[1].phase, "backward");
  EXPECT_EQ(files[0].events[2].text, "a warning");
  EXPECT_EQ(files[0].events[3].kind, "allocation");
  EXPECT_EQ(files[0].events[3].text, "83886080 bytes");
  EXPECT_NEAR(static_cast<double>(files[0].time - files[0].events[2].time) * 1e-9, 0, 20);
}

TEST(FlightFiles, RejectDamagedFiles) {
  const TempDirectory directory;
  int ignored = 0;
  EXPECT_THROW(read_flight_files(directory.path(), ignored), DataError);
  EXPECT_THROW(read_flight_files(directory.path() / "absent", ignored), DataError);
  std::ofstream(directory.path() / "rank-0.json") << "{\"format\": 2}";
  EXPECT_THROW(read_flight_files(directory.path(), ignored), DataError);
}

}  // namespace
}  // namespace convoy::dist
