// Tests of the key-value store: values, refused ranks and cleanup; and of the file that tells where it is.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "convoy/comm/cluster/store/meeting_file.h"
#include "convoy/comm/cluster/store/tcp_store.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/cluster/store_locations.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/rank_processes.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Stores : public ::testing::Test {
 protected:
  TcpLocation location;
};

TEST_F(Stores, KeepTheFirstValueOfAKey) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  first->set("a/0", "1");
  second->set("b/1", std::string("\0binary\n", 8));
  first->set("a/0", "2");
  second->set("empty/1", "");
  first->set(dist::kFailureKey, "the first");
  second->set(dist::kFailureKey, "the second");
  for (dist::TcpStore* store : {first.get(), second.get()}) {
    EXPECT_EQ(store->get("a/0", dist::Deadline(kPatience)), "1");
    EXPECT_EQ(store->get("b/1", dist::Deadline(kPatience)), std::string("\0binary\n", 8));
    EXPECT_EQ(store->get("empty/1", dist::Deadline(kPatience)), "");
    EXPECT_EQ(store->get("c/0", dist::Deadline(0)), std::nullopt);
    EXPECT_EQ(store->get(dist::kFailureKey, dist::Deadline(kPatience)), "the first");
  }
}

TEST_F(Stores, LetRanksSetOnlyTheirOwnKeys) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  for (const char* key : {"a/0", "a", "a/11", "1", ""})
    EXPECT_THAT(message_of<UsageError>([&] { second->set(key, "x"); }),
                HasSubstr(fmt::format("rank 1 may not set '{}'", key)));
  EXPECT_EQ(first->get("a/0", dist::Deadline(0)), std::nullopt);
}

TEST_F(Stores, WaitForAKey) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    first->set("late/0", "here");
  });
  EXPECT_EQ(second->get("late/0", dist::Deadline(kPatience)), "here");
  later.join();
  const double waited =
      seconds_of([&] { EXPECT_EQ(second->get("never", dist::Deadline(0.3)), std::nullopt); });
  EXPECT_GE(waited, 0.29);
  EXPECT_LT(waited, kAtOnce);
}

TEST_F(Stores, GatherTheValuesOfAllRanks) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  const auto expect_gathered = [&](const std::string& what, const std::string& of_first,
                                   const std::string& of_second) {
    const auto all = ElementsAre(of_first, of_second);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_THAT(*second->gather(what, of_second, dist::Deadline(kPatience)), all);
    });
    EXPECT_THAT(*first->gather(what, of_first, dist::Deadline(kPatience)), all);
    later.join();
  };
  // Two values of this length do not fit into one reply, unless they are equal.
  const std::string longest(dist::StoreFrame::kMaxValueBytes, 'x'), other(longest.size(), 'y');
  expect_gathered("a", longest, std::string("\0\n/", 3));
  expect_gathered("b", longest, other);
  expect_gathered("c", longest, longest);
  expect_gathered("d", "", "");
  expect_gathered("e", " 1 ", "\n");
}

TEST_F(Stores, EndAGatherAtTheDeadlineOrWhenARankFails) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  EXPECT_EQ(first->gather("a", "1", dist::Deadline(0.1)), std::nullopt);
  EXPECT_EQ(second->get("a/0", dist::Deadline(kPatience)), "1");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    second->set(dist::kFailureKey, "no data");
  });
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(first->gather("a", "1", dist::Deadline(kPatience)), std::nullopt); }),
            kAtOnce);
  later.join();
}

TEST_F(Stores, AreThreadSafe) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      dist::TcpStore& local = i % 2 == 0 ? *first : *second;
      for (int round = 0; round < 10; ++round) {
        const auto key_of = [&](int thread) { return fmt::format("{} {}/{}", round, thread, thread % 2); };
        local.set(key_of(i), std::to_string(i * round));
        const int other = (i + 1) % 6;
        const auto value = local.get(key_of(other), dist::Deadline(kPatience));
        found += value == std::to_string(other * round) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 60);
}

TEST_F(Stores, LimitTheLengthOfKeysAndValues) {
  const auto first = location.open(0);
  const auto second = location.open(1);
  const std::string longest(dist::StoreFrame::kMaxValueBytes, 'x');
  first->set("long/0", longest);
  EXPECT_EQ(second->get("long/0", dist::Deadline(kPatience)), longest);
  EXPECT_THAT(message_of<UsageError>([&] { first->set("longer/0", longest + "x"); }),
              HasSubstr("at most 1024 bytes and 1048576 bytes"));
  EXPECT_THAT(message_of<UsageError>([&] { first->gather("longer", longest + "x", dist::Deadline(1)); }),
              ::testing::AllOf(HasSubstr("1048577 bytes"), HasSubstr("at most"), HasSubstr("1048576")));
  EXPECT_THROW(first->set(std::string(2000, 'k') + "/0", "x"), UsageError);
  EXPECT_EQ(second->get("long/0", dist::Deadline(kPatience)), longest);
}

TEST_F(Stores, RefuseSecondProcessWithSameRank) {
  const auto first = location.open(0, 3);
  const auto second = location.open(1, 3);
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { location.open(1, 3); }),
                HasSubstr("a rank 1 has already joined"));
  });
  EXPECT_LT(seconds, kAtOnce);
  location.open(2, 3)->set("a/2", "1");
  EXPECT_EQ(second->get("a/2", dist::Deadline(kPatience)), "1");
}

TEST_F(Stores, RefuseAnotherJob) {
  const auto first = location.open(0);
  EXPECT_THAT(message_of<PeerError>([&] {
                location.open_as({1, 2, "other"}, kPatience);
              }),
              HasSubstr("belongs to job 'job', not 'other'"));
  EXPECT_THAT(message_of<PeerError>([&] { location.open(1, 3); }),
              HasSubstr("rank 0 has a world size of 2, rank 1 of 3"));
}

TEST_F(Stores, RefuseASecondRank0) {
  const auto first = location.open(0);
  EXPECT_THAT(message_of<UsageError>([&] { location.open(0); }), HasSubstr("is in use; choose another port"));
  location.open(1)->set("a/1", "1");
  EXPECT_EQ(first->get("a/1", dist::Deadline(kPatience)), "1");
}

TEST_F(Stores, WaitForRank0) {
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    location.open(0)->get("done/1", dist::Deadline(kPatience));
  });
  location.open(1)->set("done/1", "");
  late.join();
}

TEST_F(Stores, ReportLocationWhenRank0IsMissing) {
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] {
                  location.open_as({1, 2, "job"}, 0.4);
                }),
                HasSubstr("rank 1 waited 0.4 s for rank 0 at "));
  });
  EXPECT_LT(seconds, kAtOnce);
}

TEST_F(Stores, ReportExitOfRank0) {
  auto first = location.open(0);
  const auto second = location.open(1);
  second->set("a/1", "1");
  std::thread leaving([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { second->get("b", dist::Deadline(kPatience)); }),
                HasSubstr("rank 0 has exited"));
    EXPECT_THROW(second->get("b", dist::Deadline(kPatience)), PeerError);
  });
  leaving.join();
  EXPECT_LT(seconds, kAtOnce);
}

TEST_F(Stores, StayAvailableUntilAllRanksDisconnect) {
  // Rank 0 waits one second for the other ranks, less if all of them have disconnected.
  constexpr double kShutdownWait = 0.95;
  bool answered = false, at_once = false;
  for (int tries = 0; tries < kTries && !(answered && at_once); ++tries) {
    auto first = location.open(0);
    auto second = location.open(1);
    first->set("last/0", "word");
    std::thread leaving;
    const double seconds = seconds_of([&] {
      leaving = std::thread([&] { first.reset(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      try {
        answered = second->get("last/0", dist::Deadline(1)) == "word";
      } catch (const PeerError&) {  // rank 0 has exited
        answered = false;
      }
      second.reset();
      leaving.join();
    });
    at_once = seconds < kShutdownWait;
    const auto next = location.open(0);  // the location can be used again
  }
  EXPECT_TRUE(answered);
  EXPECT_TRUE(at_once);
}

TEST(StoreFrames, AreParsedIncrementally) {
  const dist::StoreFrame frame{dist::StoreFrame::Kind::value, "key", std::string("a\0b", 3)};
  const std::string two = frame.bytes() + frame.bytes();
  std::string bytes;
  int found = 0;
  for (const char c : two) {
    bytes += c;
    while (const std::optional<dist::StoreFrame> next = dist::take_frame(bytes)) {
      ++found;
      EXPECT_EQ(next->key, "key");
      EXPECT_EQ(next->value, frame.value);
      EXPECT_EQ(next->kind, frame.kind);
    }
  }
  EXPECT_EQ(found, 2);
  EXPECT_TRUE(bytes.empty());
}

/// The file of a job of two ranks, in a directory of its own.
class MeetingFiles : public ::testing::Test {
 protected:
  std::unique_ptr<dist::MeetingFile> create(const dist::StoreMember& member = {0, 2, "job"}) {
    return std::make_unique<dist::MeetingFile>(path, member, place);
  }
  dist::StorePlace read(const dist::StoreMember& member = {1, 2, "job"}) {
    return dist::MeetingFile::read(path, member);
  }

  TempDirectory directory;
  std::string path = (directory.path() / "rendezvous").string();
  dist::StorePlace place{.endpoints = {{"10.0.0.1", 29500}, {"fe80::1", 29500}},
                         .secret = "0123456789abcdef"};
};

TEST_F(MeetingFiles, TellWhereRank0Is) {
  EXPECT_THAT(read().missing, HasSubstr("No such file"));
  {
    const auto file = create();
    EXPECT_EQ(read().endpoints, place.endpoints);
    EXPECT_EQ(read().secret, place.secret);
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST_F(MeetingFiles, ReplaceThatOfAKilledJob) {
  const dist::StoreFrame stale{dist::StoreFrame::Kind::hello, "job", "2 secret 10.0.0.9:1"};
  for (const std::string& text : {stale.bytes(), std::string()}) {  // empty: of $(mktemp)
    directory.write("rendezvous", text);
    EXPECT_THAT(read().missing, HasSubstr("from an earlier job"));  // until rank 0 replaces it
    const auto file = create();
    EXPECT_EQ(read().endpoints, place.endpoints);
  }
}

TEST_F(MeetingFiles, LeaveOtherFilesUnchanged) {
  directory.write("rendezvous", "other data");
  EXPECT_THAT(message_of<UsageError>([&] { create(); }),
              HasSubstr("the file exists and is not a rendezvous file"));
  EXPECT_THAT(read().endpoints, ::testing::IsEmpty());
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "other data");
  path = "/no/such/directory/x";
  EXPECT_THAT(message_of<UsageError>([&] { create(); }),
              HasSubstr("rank 0 cannot create the file: No such file"));
}

TEST_F(MeetingFiles, RefuseAnotherJob) {
  const auto file = create();
  EXPECT_THAT(message_of<UsageError>([&] { create(); }), HasSubstr("another job uses the file"));
  EXPECT_THAT(message_of<PeerError>([&] {
                read({1, 2, "other"});
              }),
              HasSubstr("belongs to job 'job', not 'other'"));
  EXPECT_THAT(message_of<PeerError>([&] {
                read({1, 3, "job"});
              }),
              HasSubstr("rank 0 has a world size of 2, rank 1 of 3"));
  EXPECT_EQ(read().endpoints, place.endpoints);
}

TEST_F(MeetingFiles, RefuseAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  const auto file = create();
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  run_forked_ranks(1, [&](const ForkedRank&) {
    ASSERT_EQ(setegid(65534), 0);
    ASSERT_EQ(seteuid(65534), 0);
    EXPECT_EQ(read().missing, "it belongs to user 0, and this rank to user 65534");
  });
}

}  // namespace
}  // namespace convoy::testing
