// Ranks that meet, as processes: who comes, who does not, and what they are told.
#include "comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/gloo_communicator.h"
#include "comm/gpu_sharing.h"
#include "comm/host.h"
#include "comm/mpi_communicator.h"
#include "comm/socket.h"
#include "kernels/runtime/error.h"
#include "tests/comm/meeting_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kPatience = 40;  // seconds, where nobody is missing
constexpr double kAtOnce = 20;    // far more than it takes, less than that

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The place is one of either kind, and nothing is left of it in the end.
class Meetings : public ::testing::TestWithParam<const char*> {
 protected:
  ~Meetings() override { EXPECT_FALSE(has_left_a_file()); }

  std::string new_place() {
    if (std::string(GetParam()) == "tcp") return "tcp://127.0.0.1:" + std::to_string(free_port());
    return "file://" + (folder_.path() / std::to_string(places_++)).string();
  }

  /// A meeting by TCP has no file.
  bool has_left_a_file() const { return !std::filesystem::is_empty(folder_.path()); }

 private:
  TempFolder folder_;
  int places_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Places, Meetings, ::testing::Values("tcp", "file"),
                         [](const auto& place) { return std::string(place.param); });

TEST_P(Meetings, TellEverybodyOfEverybody) {
  const std::string where = new_place();
  run_meeting_ranks(4, where, [&](Rendezvous& meeting) {
    const RankInfo& info = meeting.info();
    EXPECT_EQ(info.source, GetParam());
    EXPECT_EQ(info.world, 4);
    EXPECT_EQ(info.local_rank, info.rank);
    EXPECT_EQ(info.local_world, 4);
    EXPECT_EQ(info.nodes, 1);
    EXPECT_EQ(info.host, this_host().name);
    ASSERT_EQ(meeting.all().size(), 4U);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(meeting.all()[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(meeting.note(), "RANK and WORLD_SIZE, " + where);
    ASSERT_NE(meeting.store(), nullptr);
    EXPECT_EQ(meeting.store()->name(), where);
  });
}

TEST_P(Meetings, ExchangeTexts) {
  run_meeting_ranks(3, new_place(), [](Rendezvous& meeting) {
    for (int round = 0; round < 20; ++round) {
      const auto text_of = [&](int rank) {
        return std::string(static_cast<std::size_t>(rank * round), '\n');
      };
      const std::vector<std::string> texts = meeting.all_gather(text_of(meeting.info().rank));
      ASSERT_EQ(texts.size(), 3U);
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
    }
  });
}

TEST_P(Meetings, HoldABarrierUntilTheLastHasCome) {
  run_meeting_ranks(3, new_place(), [](Rendezvous& meeting) {
    using Clock = std::chrono::steady_clock;  // one for all processes of a machine
    if (meeting.info().rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto came = Clock::now().time_since_epoch().count();
    meeting.barrier();
    const auto left = Clock::now().time_since_epoch().count();
    const std::string came_last = std::ranges::max(meeting.all_gather(fmt::format("{:020}", came)));
    EXPECT_LE(came_last, fmt::format("{:020}", left));
  });
}

TEST_P(Meetings, ListWhoIsMissing) {
  const std::string where = new_place();
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    rank.exchange("");  // who comes does so in time
    if (rank.rank == 2) return;
    // Rank 0's verdict is everybody's, also of who would wait longer.
    const double patience = rank.rank == 3 ? kPatience : 2;
    set_launch(rank.rank, rank.size);
    const double seconds = seconds_of([&] {
      const std::string error =
          message_of<PeerError>([&] { Rendezvous::meet({.where = where, .timeout_seconds = patience}); });
      EXPECT_THAT(error, HasSubstr(where));
      EXPECT_THAT(error, HasSubstr("after 2 s ranks 0, 1, 3 have come, rank 2 is missing"));
    });
    EXPECT_LT(seconds, kAtOnce);
  });
}

TEST_P(Meetings, WaitForWhoIsLate) {
  const std::string where = new_place();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400 * ((rank.rank + 1) % 3)));  // rank 1 last
    set_launch(rank.rank, rank.size);
    Rendezvous::meet({.where = where, .timeout_seconds = kPatience})->barrier();
  });
}

TEST_P(Meetings, RefuseARankThatIsThereTwice) {
  const std::string where = new_place();
  // 0, 1, 1: of the two one is refused, and the others go on without it.
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(std::min(rank.rank, 1), 2);
    std::unique_ptr<Rendezvous> meeting;  // until the third has come
    std::string error;
    try {
      meeting = Rendezvous::meet({.where = where, .timeout_seconds = kPatience});
    } catch (const PeerError& refused) {
      error = refused.what();
    }
    const std::vector<std::string> all = rank.exchange(error);
    EXPECT_EQ(all[0], "");
    EXPECT_NE(all[1].empty(), all[2].empty());
    EXPECT_THAT(all[1] + all[2], HasSubstr("a rank 1 has come already"));
  });
}

TEST_P(Meetings, OfTwoJobsDoNotMix) {
  const std::string places[] = {new_place(), new_place()};
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    const int job = rank.rank / 2;
    set_launch(rank.rank % 2, 2);
    const auto meeting = Rendezvous::meet({.where = places[job], .timeout_seconds = kPatience});
    for (int round = 0; round < 10; ++round)
      for (const std::string& text : meeting->all_gather(std::to_string(job)))
        EXPECT_EQ(text, std::to_string(job));
  });
}

TEST_P(Meetings, OfTwoJobsAtOnePlaceAreRefused) {
  const std::string where = new_place();
  run_forked_ranks(4, [&](const ForkedRank& rank) {
    const bool first = rank.rank < 2;
    set_launch(rank.rank % 2, 2);
    setenv("CONVOY_JOB", first ? "first" : "second", 1);
    std::unique_ptr<Rendezvous> meeting;
    if (first) meeting = Rendezvous::meet({.where = where, .timeout_seconds = kPatience});
    rank.exchange("");  // the second job starts now
    const auto meet = [&] { Rendezvous::meet({.where = where, .timeout_seconds = kPatience}); };
    if (rank.rank == 2) {
      EXPECT_THAT(message_of<UsageError>(meet),
                  AnyOf(HasSubstr("is in use"), HasSubstr("another job meets there")));
    } else if (rank.rank == 3) {
      EXPECT_THAT(message_of<PeerError>(meet), HasSubstr("this is job 'first', not 'second'"));
    }
    rank.exchange("");
    if (first) meeting->barrier();
  });
}

TEST_P(Meetings, EndForAllWhenOneFails) {
  const std::string where = new_place();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = kPatience});
    if (rank.rank == 1) {
      EXPECT_THROW(
          {
            const auto mine = std::move(meeting);
            throw DataError("no data set here");
          },
          DataError);
      return;
    }
    const double seconds = seconds_of([&] {
      EXPECT_THAT(message_of<PeerError>([&] { meeting->barrier(); }),
                  HasSubstr("rank 1 left before the end"));
    });
    EXPECT_LT(seconds, kAtOnce);
    rank.wait_for_the_rest();  // rank 0 keeps what tells them so
  });
}

TEST_P(Meetings, NameARankThatWasKilled) {
  const std::string where = new_place();
  run_forked_ranks(3, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    rank.exchange("");
    const auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = 2});
    rank.exchange("");
    if (rank.rank == 2) kill(getpid(), SIGKILL);
    EXPECT_THAT(message_of<PeerError>([&] { meeting->barrier(); }), HasSubstr("rank 2 is missing"));
    rank.wait_for_the_rest();
  });
}

TEST_P(Meetings, EndWhenRank0IsKilled) {
  const std::string where = new_place();
  for (int job = 0; job < 2; ++job) {  // and the next job meets at the same place
    run_forked_ranks(3, [&](const ForkedRank& rank) {
      set_launch(rank.rank, rank.size);
      const auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = kPatience});
      meeting->barrier();
      if (job == 1) return;
      rank.exchange("");  // all are out of the first
      if (rank.rank == 0) kill(getpid(), SIGKILL);
      const double seconds = seconds_of([&] {
        EXPECT_THAT(message_of<PeerError>([&] { meeting->barrier(); }), HasSubstr("rank 0 has gone"));
      });
      EXPECT_LT(seconds, kAtOnce);
    });
    EXPECT_FALSE(has_left_a_file());  // who is left clears up
  }
}

TEST_P(Meetings, RefuseRanksOfOneGpu) {
  run_meeting_ranks(4, new_place(), [](Rendezvous& meeting) {
    const int rank = meeting.info().rank;
    check_gpu_sharing(meeting, "", false);  // the CPU is everybody's
    check_gpu_sharing(meeting, "GPU-" + std::to_string(rank), false);
    const std::string gpu = rank == 3 ? "GPU-1" : "GPU-" + std::to_string(rank);
    check_gpu_sharing(meeting, gpu, true);
    const std::string error = message_of<UsageError>([&] { check_gpu_sharing(meeting, gpu, false); });
    EXPECT_THAT(error, HasSubstr("ranks 1 and 3 of host"));
    EXPECT_THAT(error, HasSubstr("GPU-1"));
    EXPECT_THAT(error, HasSubstr("--allow-shared-gpu"));
  });
}

TEST(TcpMeeting, ProceedsAmongGarbage) {
  const int port = free_port();
  const TempFolder folder;
  const std::filesystem::path enough = folder.path() / "enough";
  run_meeting_ranks(
      3, "tcp://127.0.0.1:" + std::to_string(port),
      [&](Rendezvous& meeting) {
        while (meeting.all_gather(std::filesystem::exists(enough) ? "end" : "go on").front() == "go on")
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      [&](const std::vector<pid_t>&) {
        std::vector<Socket> sockets;
        const Deadline deadline(kPatience);
        while (sockets.size() < 200 && !deadline.passed()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::string reason;
          std::optional<Socket> socket = try_connect({"127.0.0.1", port}, Deadline(1), reason);
          if (!socket) continue;
          send_all(*socket, sockets.size() % 3 == 0 ? std::string(3000, 'x') : "", Deadline(1));
          sockets.push_back(std::move(*socket));
        }
        EXPECT_EQ(sockets.size(), 200U);
        folder.write(enough, "");
      });
}

TEST(TcpMeeting, KnowsAnAddressOfEachHost) {
  run_meeting_ranks(2, "tcp://localhost:" + std::to_string(free_port()),
                    [](Rendezvous& meeting) { EXPECT_EQ(meeting.info().address, "127.0.0.1"); });
}

TEST(TcpMeeting, SaysThatThePortIsInUse) {
  const int port = free_port();
  const Socket other = listen_at({"127.0.0.1", port});
  const std::string where = "tcp://127.0.0.1:" + std::to_string(port);
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    set_launch(rank.rank, rank.size);
    const double seconds = seconds_of([&] {
      const auto meet = [&] { Rendezvous::meet({.where = where, .timeout_seconds = 1}); };
      if (rank.rank == 0) {
        EXPECT_THAT(message_of<UsageError>(meet), HasSubstr("in use: choose another"));
      } else {
        EXPECT_THAT(message_of<PeerError>(meet), HasSubstr("rank 1 waited 1 s for rank 0"));
      }
    });
    EXPECT_LT(seconds, kAtOnce);
  });
}

TEST(TcpMeeting, SaysThatTheMasterIsNotReached) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    if (rank.rank == 0) return;
    set_launch(rank.rank, rank.size);
    for (const char* where : {"tcp://127.0.0.1:1", "tcp://192.0.2.1:29500", "tcp://nobody.invalid:29500"}) {
      const double seconds = seconds_of([&] {
        EXPECT_THAT(
            message_of<PeerError>([&] { Rendezvous::meet({.where = where, .timeout_seconds = 0.5}); }),
            HasSubstr(std::string("rank 1 waited 0.5 s for rank 0 at ") + where));
      });
      EXPECT_LT(seconds, kPatience) << where;  // a resolver takes its time
    }
  });
}

TEST(Meeting, OfOneProcessNeedsNobody) {
  run_forked_ranks(1, [](const ForkedRank&) {
    set_launch(0, 1);
    auto meeting = Rendezvous::meet();
    EXPECT_EQ(meeting->info().source, "environment");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    meeting = Rendezvous::meet();
    EXPECT_EQ(meeting->info().source, "one process");
    EXPECT_EQ(meeting->info().world, 1);
    EXPECT_EQ(meeting->note(), "one process");
    EXPECT_EQ(meeting->store(), nullptr);
    EXPECT_EQ(meeting->all_gather("x"), std::vector<std::string>{"x"});
    meeting->barrier();
    EXPECT_THROW(Rendezvous::meet({.timeout_seconds = 0}), UsageError);
  });
}

/// In a build without the library, too, where that is the reason.
TEST(Meeting, ThatIsNotTheirsIsRefusedByCommunicators) {
  run_meeting_ranks(1, "tcp://127.0.0.1:" + std::to_string(free_port()), [](Rendezvous& meeting) {
    EXPECT_THAT(message_of<UsageError>([&] { make_mpi_communicator(meeting); }), HasSubstr("--comm mpi: "));
  });
  /// Ranks that met without a store.
  struct Others : Rendezvous {
    std::vector<RankInfo> ranks{{.rank = 0, .world = 2}, {.rank = 1, .world = 2}};
    const RankInfo& info() const override { return ranks.front(); }
    const std::vector<RankInfo>& all() const override { return ranks; }
    Store* store() override { return nullptr; }
    std::vector<std::string> all_gather(const std::string& mine) override { return {mine, mine}; }
    void barrier() override {}
    std::string note() const override { return "by magic"; }
  } others;
  EXPECT_THAT(message_of<UsageError>([&] { make_gloo_communicator(others); }), HasSubstr("--comm gloo: "));
}

}  // namespace
}  // namespace convoy::testing
