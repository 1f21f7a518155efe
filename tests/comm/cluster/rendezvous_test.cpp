// Tests of initialization through a store, at a known place or one that a file tells, with forked processes: missing, late, refused and
// killed ranks.
#include "convoy/comm/bootstrap/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/rendezvous_ranks.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/rank_processes.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kPatience = 40;  // seconds; timeout if no rank is missing
constexpr double kAtOnce = 20;    // seconds; far more than necessary, less than kPatience

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The parameter is the kind of the store. Checks that no file is left at the end.
class RendezvousTest : public ::testing::TestWithParam<const char*> {
 protected:
  ~RendezvousTest() override { EXPECT_FALSE(has_left_a_file()); }

  std::string new_url() {
    if (std::string(GetParam()) == "tcp") return "tcp://127.0.0.1:" + std::to_string(free_port());
    return "file://" + (directory_.path() / std::to_string(urls_++)).string();
  }

  /// Always false with TCP.
  bool has_left_a_file() const { return !std::filesystem::is_empty(directory_.path()); }

 private:
  TempDirectory directory_;
  int urls_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Stores, RendezvousTest, ::testing::Values("tcp", "file"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(RendezvousTest, ProvidesPositionsOfAllRanks) {
  const std::string where = new_url();
  run_rendezvous_ranks(4, where, [&](dist::Rendezvous& rendezvous) {
    const dist::RankInfo& info = rendezvous.info();
    EXPECT_EQ(info.source, GetParam());
    EXPECT_EQ(info.world_size, 4);
    EXPECT_EQ(info.local_rank, info.rank);
    EXPECT_EQ(info.local_world_size, 4);
    EXPECT_EQ(info.nodes, 1);
    EXPECT_EQ(info.host, dist::this_host().name);
    ASSERT_EQ(rendezvous.all().size(), 4U);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(rendezvous.all()[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(rendezvous.note(), "RANK and WORLD_SIZE, " + where);
  });
}

TEST_P(RendezvousTest, GathersStrings) {
  run_rendezvous_ranks(3, new_url(), [](dist::Rendezvous& rendezvous) {
    for (int round = 0; round < 20; ++round) {
      const auto to_string = [&](int rank) {
        return std::string(static_cast<std::size_t>(rank * round), '\n');
      };
      const std::vector<std::string> texts = rendezvous.all_gather(to_string(rendezvous.info().rank));
      ASSERT_EQ(texts.size(), 3U);
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], to_string(rank));
    }
  });
}

TEST_P(RendezvousTest, BarrierWaitsForAllRanks) {
  run_rendezvous_ranks(3, new_url(), [](dist::Rendezvous& rendezvous) {
    using Clock = std::chrono::steady_clock;  // the same clock in all processes of a machine
    if (rendezvous.info().rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto entered = Clock::now().time_since_epoch().count();
    rendezvous.barrier();
    const auto left = Clock::now().time_since_epoch().count();
    const std::string entered_last = std::ranges::max(rendezvous.all_gather(fmt::format("{:020}", entered)));
    EXPECT_LE(entered_last, fmt::format("{:020}", left));
  });
}

TEST_P(RendezvousTest, ReportsMissingRanks) {
  const std::string where = new_url();
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    rank.exchange("");  // so that all ranks start at the same time
    if (rank.rank == 2) return;
    // The first rank that times out ends the wait of all ranks, also of those with a longer timeout.
    const double timeout = rank.rank == 3 ? kPatience : 2;
    set_launch(rank.rank, rank.size);
    const double seconds = seconds_of([&] {
      const std::string error = message_of<PeerError>([&] { init_rendezvous(where, timeout); });
      EXPECT_THAT(error, HasSubstr(where));
      EXPECT_THAT(error, HasSubstr("after 2 s ranks 0, 1, 3 have joined, rank 2 is missing"));
    });
    EXPECT_LT(seconds, kAtOnce);
  });
}

TEST_P(RendezvousTest, WaitsForLateRanks) {
  const std::string where = new_url();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400 * ((rank.rank + 1) % 3)));  // rank 1 last
    set_launch(rank.rank, rank.size);
    init_rendezvous(where, kPatience)->barrier();
  });
}

TEST_P(RendezvousTest, RefusesDuplicateRank) {
  const std::string where = new_url();
  // Starts ranks 0, 1 and 1: one of the duplicates is refused, and the others continue.
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(std::min(rank.rank, 1), 2);
    std::unique_ptr<dist::Rendezvous> rendezvous;  // kept until all processes have tried
    std::string error;
    try {
      rendezvous = init_rendezvous(where, kPatience);
    } catch (const PeerError& refused) {
      error = refused.what();
    }
    const std::vector<std::string> all = rank.exchange(error);
    EXPECT_EQ(all[0], "");
    EXPECT_NE(all[1].empty(), all[2].empty());
    EXPECT_THAT(all[1] + all[2], HasSubstr("a rank 1 has already joined"));
  });
}

TEST_P(RendezvousTest, KeepsTwoJobsSeparate) {
  const std::string urls[] = {new_url(), new_url()};
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    const int job = rank.rank / 2;
    set_launch(rank.rank % 2, 2);
    const auto rendezvous = init_rendezvous(urls[job], kPatience);
    for (int round = 0; round < 10; ++round)
      for (const std::string& text : rendezvous->all_gather(std::to_string(job)))
        EXPECT_EQ(text, std::to_string(job));
  });
}

TEST_P(RendezvousTest, RefusesSecondJobAtSameLocation) {
  const std::string where = new_url();
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    const bool first = rank.rank < 2;
    set_launch(rank.rank % 2, 2);
    setenv("CONVOY_JOB", first ? "first" : "second", 1);
    std::unique_ptr<dist::Rendezvous> rendezvous;
    if (first) rendezvous = init_rendezvous(where, kPatience);
    rank.exchange("");  // the second job starts now
    const auto init = [&] { init_rendezvous(where, kPatience); };
    if (rank.rank == 2) {
      EXPECT_THAT(message_of<UsageError>(init),
                  AnyOf(HasSubstr("is in use"), HasSubstr("another job uses the file")));
    } else if (rank.rank == 3) {
      EXPECT_THAT(message_of<PeerError>(init), HasSubstr("belongs to job 'first', not 'second'"));
    }
    rank.exchange("");
    if (first) rendezvous->barrier();
  });
}

TEST_P(RendezvousTest, FailsOnAllRanksWhenOneFails) {
  const std::string where = new_url();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    auto rendezvous = init_rendezvous(where, kPatience);
    if (rank.rank == 1) {
      EXPECT_THROW(
          {
            const auto local = std::move(rendezvous);
            throw DataError("no data set here");
          },
          DataError);
      return;
    }
    const double seconds = seconds_of([&] {
      EXPECT_THAT(message_of<PeerError>([&] { rendezvous->barrier(); }),
                  HasSubstr("rank 1 exited before finishing"));
    });
    EXPECT_LT(seconds, kAtOnce);
    rank.wait_for_peers();  // rank 0 serves the store that reports the failure
  });
}

/// A rank that fails because of another one names that one, and not itself.
TEST_P(RendezvousTest, TellsWhyARankFails) {
  const std::string where = new_url();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    auto rendezvous = init_rendezvous(where, kPatience);
    if (rank.rank == 1) {
      EXPECT_THROW(
          {
            const auto local = std::move(rendezvous);
            dist::tell_failure(*local, "control plane: rank 1 cannot reach rank 2");
            throw PeerError("");
          },
          PeerError);
      return;
    }
    EXPECT_EQ(message_of<PeerError>([&] { rendezvous->barrier(); }),
              "control plane: rank 1 cannot reach rank 2");
    rank.wait_for_peers();
  });
}

TEST_P(RendezvousTest, ReportsKilledRank) {
  const std::string where = new_url();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    rank.exchange("");
    const auto rendezvous = init_rendezvous(where, 2);
    rank.exchange("");
    if (rank.rank == 2) kill(getpid(), SIGKILL);
    EXPECT_THAT(message_of<PeerError>([&] { rendezvous->barrier(); }), HasSubstr("rank 2 is missing"));
    rank.wait_for_peers();
  });
}

TEST_P(RendezvousTest, FailsWhenRank0IsKilled) {
  const std::string where = new_url();
  for (int job = 0; job < 2; ++job)  // the second job uses the same location
    run_forked_ranks(3, [&](const ForkedRank& rank) {
      set_launch(rank.rank, rank.size);
      const auto rendezvous = init_rendezvous(where, kPatience);
      rendezvous->barrier();
      if (job == 1) return;
      rank.exchange("");  // all ranks have left the barrier
      if (rank.rank == 0) kill(getpid(), SIGKILL);
      const double seconds = seconds_of([&] {
        EXPECT_THAT(message_of<PeerError>([&] { rendezvous->barrier(); }), HasSubstr("rank 0 has exited"));
      });
      EXPECT_LT(seconds, kAtOnce);
    });
}

TEST_P(RendezvousTest, RefusesRanksThatShareAGpu) {
  run_rendezvous_ranks(4, new_url(), [](dist::Rendezvous& rendezvous) {
    const int rank = rendezvous.info().rank;
    dist::check_gpu_sharing(rendezvous, "", false);  // ranks may share the CPU
    dist::check_gpu_sharing(rendezvous, "GPU-" + std::to_string(rank), false);
    const std::string gpu = rank == 3 ? "GPU-1" : "GPU-" + std::to_string(rank);
    dist::check_gpu_sharing(rendezvous, gpu, true);
    const std::string error =
        message_of<UsageError>([&] { dist::check_gpu_sharing(rendezvous, gpu, false); });
    EXPECT_THAT(error, HasSubstr("ranks 1 and 3 of host"));
    EXPECT_THAT(error, HasSubstr("GPU-1"));
    EXPECT_THAT(error, HasSubstr("allow_shared_gpu"));
  });
}

TEST(TcpRendezvous, IgnoresInvalidClients) {
  const int port = free_port();
  const TempDirectory directory;
  const std::filesystem::path done = directory.path() / "done";
  run_rendezvous_ranks(
      3, "tcp://127.0.0.1:" + std::to_string(port),
      [&](dist::Rendezvous& rendezvous) {
        while (rendezvous.all_gather(std::filesystem::exists(done) ? "end" : "go on").front() == "go on")
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      [&](const std::vector<pid_t>&) {
        std::vector<dist::Socket> sockets;
        const dist::Deadline deadline(kPatience);
        while (sockets.size() < 200 && !deadline.passed()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::string reason;
          std::optional<dist::Socket> socket =
              dist::try_connect({"127.0.0.1", port}, dist::Deadline(1), reason);
          if (!socket) continue;
          dist::send_all(*socket, sockets.size() % 3 == 0 ? std::string(3000, 'x') : "", dist::Deadline(1));
          sockets.push_back(std::move(*socket));
        }
        EXPECT_EQ(sockets.size(), 200U);
        directory.write(done, "");
      });
}

TEST(TcpRendezvous, DeterminesAddressOfEachHost) {
  run_rendezvous_ranks(2, "tcp://localhost:" + std::to_string(free_port()), [](dist::Rendezvous& rendezvous) {
    EXPECT_EQ(rendezvous.info().address, "127.0.0.1");
  });
}

TEST(TcpRendezvous, ReportsPortInUse) {
  const int port = free_port();
  const dist::Socket other = dist::listen_at({"127.0.0.1", port});
  const std::string where = "tcp://127.0.0.1:" + std::to_string(port);
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    const double seconds = seconds_of([&] {
      const auto init = [&] { init_rendezvous(where, 1); };
      if (rank.rank == 0) {
        EXPECT_THAT(message_of<UsageError>(init), HasSubstr("in use; choose another port"));
      } else {
        EXPECT_THAT(message_of<PeerError>(init), HasSubstr("rank 1 waited 1 s for rank 0"));
      }
    });
    EXPECT_LT(seconds, kAtOnce);
  });
}

TEST(TcpRendezvous, ReportsUnreachableRank0) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    if (rank.rank == 0) return;
    set_launch(rank.rank, rank.size);
    for (const char* where : {"tcp://127.0.0.1:1", "tcp://192.0.2.1:29500", "tcp://unknown.invalid:29500"}) {
      const double seconds = seconds_of([&] {
        EXPECT_THAT(message_of<PeerError>([&] { init_rendezvous(where, 0.5); }),
                    HasSubstr(std::string("rank 1 waited 0.5 s for rank 0 at ") + where));
      });
      EXPECT_LT(seconds, kPatience) << where;  // name resolution may be slow
    }
  });
}

TEST(Rendezvous, OfOneProcessNeedsNoStore) {
  run_forked_ranks(1, [](const ForkedRank&) {
    set_launch(0, 1);
    auto rendezvous = init_rendezvous();
    EXPECT_EQ(rendezvous->info().source, "environment");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    rendezvous = init_rendezvous();
    EXPECT_EQ(rendezvous->info().source, "one process");
    EXPECT_EQ(rendezvous->info().world_size, 1);
    EXPECT_EQ(rendezvous->note(), "one process");
    EXPECT_EQ(rendezvous->all_gather("x"), std::vector<std::string>{"x"});
    rendezvous->barrier();
    EXPECT_THROW(dist::Rendezvous::init({.timeout_seconds = 0}), UsageError);
  });
}

/// Holds also in a build without the library, which is then the reason.
TEST(Rendezvous, OfAnotherKindIsRefusedByMpi) {
  run_rendezvous_ranks(1, "tcp://127.0.0.1:" + std::to_string(free_port()), [](dist::Rendezvous& rendezvous) {
    EXPECT_THAT(message_of<UsageError>([&] { dist::make_mpi_communicator(rendezvous); }),
                HasSubstr("MPI communicator: "));
  });
}

TEST(Rendezvous, RaisesTheLimitOfFileDescriptors) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t hard = limit.rlim_max;
    limit.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &limit);
    init_rendezvous();
    getrlimit(RLIMIT_NOFILE, &limit);
    _exit(limit.rlim_cur == std::min<rlim_t>(hard, 1 << 20) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace convoy::testing
