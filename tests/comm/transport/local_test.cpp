// Tests of communicators within one process: a single rank, and threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <random>
#include <span>
#include <thread>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "tests/comm/rank_threads.h"
#include "tests/comm/transport/conformance.h"
#include "tests/comm/transport/corruption.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

void run_self(int, const auto& body) {
  body(dist::make_self_communicator, [] {});
}

/// Runs cases on ranks that are threads.
void run_threads(int ranks, const auto& body) {
  run_rank_threads(ranks, [&](dist::Rendezvous& rendezvous) {
    body(
        [&](const dist::CommOptions& options) { return dist::make_thread_communicator(rendezvous, options); },
        [&] { rendezvous.barrier(); });
  });
}

class LocalCommunicator : public ::testing::TestWithParam<ConformanceRun> {};
TEST_P(LocalCommunicator, Conforms) { GetParam().run(); }

const auto run_name = [](const auto& run) { return run.param.name(); };
INSTANTIATE_TEST_SUITE_P(
    Self, LocalCommunicator,
    ::testing::ValuesIn(conformance_runs({"self", [](int ranks, const auto& body) { run_self(ranks, body); }},
                                         {1}, {result_cases()})),
    run_name);
INSTANTIATE_TEST_SUITE_P(Thread, LocalCommunicator,
                         ::testing::ValuesIn(conformance_runs(
                             {"thread", [](int ranks, const auto& body) { run_threads(ranks, body); }},
                             {1, 2, 3, 4, 8}, {result_cases(), disagreement_cases(), departure_cases()})),
                         run_name);

/// Flips bits of elements that equal `value`, unnoticed by the thread sanitizer, to which it would be a data
/// race.
class MemoryDamage {
 public:
  MemoryDamage(std::span<float> place, float value)
      : thread_([place, value](const std::stop_token& stop) {
          const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
          ASSERT_GE(memory, 0);
          std::minstd_rand random;
          while (!stop.stop_requested()) {
            const auto at = reinterpret_cast<off_t>(place.data() + random() % place.size());
            std::uint32_t bits = 0;
            ASSERT_EQ(pread(memory, &bits, sizeof bits, at), 4);
            if (bits != std::bit_cast<std::uint32_t>(value)) continue;
            bits ^= 1U << random() % 32;
            ASSERT_EQ(pwrite(memory, &bits, sizeof bits, at), 4);
          }
          close(memory);
        }) {}

 private:
  std::jthread thread_;
};

/// Repeats collectives with groups of two threads until the errors of both ranks say that a bit of rank 0's
/// memory has changed while `what`, whose elements equal `value`, was on its way. A bit that changes before
/// the collective is no corruption.
void expect_reported_between_threads(const std::string& what, float value,
                                     const std::function<void(dist::Communicator&, View)>& collective) {
  constexpr std::size_t kCount = 1 << 20;
  const dist::Deadline limit(60);
  bool is_found = false;
  while (!is_found && !limit.passed()) {
    std::array<std::vector<float>, 2> data{std::vector<float>(kCount, 1), std::vector<float>(kCount, 2)};
    std::array<std::string, 2> errors;
    const MemoryDamage damage{std::span(data[0]).subspan(kCount / 2), value};  // the shard that rank 1 sums
    on_ranks(2, [&](dist::Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const View view{data[rank].data(), {static_cast<std::int64_t>(kCount)}, DType::f32};
      try {
        comm.set_bucket(kChangedBucket);
        collective(comm, view);
        comm.barrier();
        comm.finish();
      } catch (const PeerError& error) {
        errors[rank] = error.what();
      }
    });
    const auto says = [&](const std::string& error) {
      return error.find(what + " with the checksum ") != std::string::npos &&
             error.find(", bucket " + std::to_string(kChangedBucket)) != std::string::npos;
    };
    EXPECT_EQ(errors[0].empty(), errors[1].empty()) << errors[0] << errors[1];
    is_found = says(errors[0]) && says(errors[1]);
  }
  EXPECT_TRUE(is_found) << what;
}

TEST(ThreadCorruption, OfAContributionIsReported) {
  expect_reported_between_threads("rank 0 sent a contribution", 1,
                                  [](dist::Communicator& comm, View data) { comm.all_reduce(data); });
}

TEST(ThreadCorruption, OfASumIsReported) {
  expect_reported_between_threads("rank 1 sent a sum", 1 + 2,
                                  [](dist::Communicator& comm, View data) { comm.all_reduce(data); });
}

TEST(ThreadCorruption, OfABroadcastIsReported) {
  expect_reported_between_threads("rank 0 sent data", 1,
                                  [](dist::Communicator& comm, View data) { comm.broadcast(data, 0); });
}

TEST(ThreadCommunicator, WaitingRanksUseNoCpuTime) {
  on_ranks(3, [](dist::Communicator& comm) {
    EXPECT_LT(cpu_seconds_of_late_barrier(comm, 400), 0.2);  // two spinning ranks would use 0.8 s
    comm.finish();
  });
}

TEST(ThreadRendezvous, RanksShareOneHost) {
  const auto by_rank = dist::rendezvous_in_threads(3, 1);
  ASSERT_EQ(by_rank.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const dist::RankInfo& info = by_rank[static_cast<std::size_t>(rank)]->info();
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.world_size, 3);
    EXPECT_EQ(info.local_rank, rank);
    EXPECT_EQ(info.local_world_size, 3);
    EXPECT_EQ(info.nodes, 1);
    EXPECT_EQ(info.source, "threads");
  }
  EXPECT_EQ(by_rank.front()->all().size(), 3U);
}

TEST(ThreadRendezvous, GathersStringsAndSharesObjectOfRank0) {
  run_rank_threads(4, [](dist::ThreadRendezvous& rendezvous) {
    const int rank = rendezvous.info().rank;
    for (int round = 0; round < 50; ++round) {
      const std::string suffix = " of round " + std::to_string(round);
      std::vector<std::string> expected;
      for (int other = 0; other < 4; ++other) expected.push_back(std::to_string(other) + suffix);
      EXPECT_EQ(rendezvous.all_gather(std::to_string(rank) + suffix), expected);
      const auto local = std::make_shared<int>(100 * rank + round);
      EXPECT_EQ(*std::static_pointer_cast<int>(rendezvous.share(local)), round);
    }
  });
}

TEST(ThreadRendezvous, ReportsMissingRanksAtTheDeadline) {
  const auto by_rank = dist::rendezvous_in_threads(3, 0.05);
  const std::string expected = "rank 1 waited 0.05 s for ranks 0, 2";
  EXPECT_EQ(message_of<PeerError>([&] { by_rank[1]->all_gather(""); }), expected);
  EXPECT_EQ(message_of<PeerError>([&] { by_rank[2]->all_gather(""); }), expected)
      << "a rank that is too late";
}

TEST(ThreadRendezvous, ExitOfOneRankEndsWaits) {
  run_rank_threads(3, [](dist::ThreadRendezvous& rendezvous) {
    if (rendezvous.info().rank == 1) return;
    EXPECT_EQ(message_of<PeerError>([&] { rendezvous.share(nullptr); }), "rank 1 exited before finishing");
    EXPECT_EQ(message_of<PeerError>([&] { rendezvous.all_gather(""); }), "rank 1 exited before finishing");
  });
}

TEST(ThreadRendezvous, ProvidesCommunicators) {
  run_rank_threads(3, [](dist::ThreadRendezvous& rendezvous) {
    const std::unique_ptr<dist::Communicator> comm =
        dist::make_thread_communicator(rendezvous, {.timeout_seconds = 60});
    const std::unique_ptr<dist::Communicator> other =
        dist::make_thread_communicator(rendezvous, {.timeout_seconds = 60});
    EXPECT_EQ(comm->rank(), rendezvous.info().rank);
    for (dist::Communicator* one : {comm.get(), other.get()}) {
      std::int32_t sum = 1 << one->rank();
      one->all_reduce({&sum, {1}, DType::i32});
      one->finish();
      EXPECT_EQ(sum, 7);
    }
  });
}

TEST(ThreadRendezvous, OfAnotherKindIsRefused) {
  const std::unique_ptr<dist::Rendezvous> alone = dist::Rendezvous::init();
  EXPECT_THAT(
      message_of<UsageError>([&] { dist::make_thread_communicator(*alone); }),
      ::testing::HasSubstr("thread communicator: the ranks are not threads of one process (one process)"));
}

TEST(ThreadCommunicator, RejectsZeroRanks) { EXPECT_THROW(dist::make_thread_communicators(0), UsageError); }

}  // namespace
}  // namespace convoy::testing
