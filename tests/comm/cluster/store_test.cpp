// Tests of the key-value stores, over TCP and in a file: values, refused ranks, stale files and cleanup.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

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

template <class P>
class Stores : public ::testing::Test {
 protected:
  P location;
};
using Locations = ::testing::Types<TcpLocation, FileLocation>;
TYPED_TEST_SUITE(Stores, Locations);

TYPED_TEST(Stores, KeepTheFirstValueOfAKey) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  first->set("a/0", "1");
  second->set("b/1", std::string("\0binary\n", 8));
  first->set("a/0", "2");
  second->set("empty/1", "");
  first->set(dist::kFailureKey, "the first");
  second->set(dist::kFailureKey, "the second");
  for (dist::Store* store : {first.get(), second.get()}) {
    EXPECT_EQ(store->get("a/0", dist::Deadline(kPatience)), "1");
    EXPECT_EQ(store->get("b/1", dist::Deadline(kPatience)), std::string("\0binary\n", 8));
    EXPECT_EQ(store->get("empty/1", dist::Deadline(kPatience)), "");
    EXPECT_EQ(store->get("c/0", dist::Deadline(0)), std::nullopt);
    EXPECT_EQ(store->get(dist::kFailureKey, dist::Deadline(kPatience)), "the first");
  }
}

TYPED_TEST(Stores, LetRanksSetOnlyTheirOwnKeys) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  for (const char* key : {"a/0", "a", "a/11", "1", ""})
    EXPECT_THAT(message_of<UsageError>([&] { second->set(key, "x"); }),
                HasSubstr(fmt::format("rank 1 may not set '{}'", key)));
  EXPECT_EQ(first->get("a/0", dist::Deadline(0)), std::nullopt);
}

TYPED_TEST(Stores, WaitForAKey) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
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

TYPED_TEST(Stores, GatherTheValuesOfAllRanks) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
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

TYPED_TEST(Stores, EndAGatherAtTheDeadlineOrWhenARankFails) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
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

TYPED_TEST(Stores, AreThreadSafe) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
  std::vector<std::thread> threads;
  std::atomic<int> found = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      dist::Store& local = i % 2 == 0 ? *first : *second;
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

TYPED_TEST(Stores, LimitTheLengthOfKeysAndValues) {
  const auto first = this->location.open(0);
  const auto second = this->location.open(1);
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

TYPED_TEST(Stores, RefuseSecondProcessWithSameRank) {
  const auto first = this->location.open(0, 3);
  const auto second = this->location.open(1, 3);
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] { this->location.open(1, 3); }),
                HasSubstr("a rank 1 has already joined"));
  });
  EXPECT_LT(seconds, kAtOnce);
  this->location.open(2, 3)->set("a/2", "1");
  EXPECT_EQ(second->get("a/2", dist::Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, RefuseAnotherJob) {
  const auto first = this->location.open(0);
  EXPECT_THAT(message_of<PeerError>([&] {
                this->location.open_as({1, 2, "other"}, kPatience);
              }),
              HasSubstr("belongs to job 'job', not 'other'"));
  EXPECT_THAT(message_of<PeerError>([&] { this->location.open(1, 3); }),
              HasSubstr("rank 0 has a world size of 2, rank 1 of 3"));
}

TYPED_TEST(Stores, RefuseASecondRank0) {
  const auto first = this->location.open(0);
  EXPECT_THAT(
      message_of<UsageError>([&] { this->location.open(0); }),
      ::testing::AnyOf(HasSubstr("is in use; choose another port"), HasSubstr("another job uses the file")));
  this->location.open(1)->set("a/1", "1");
  EXPECT_EQ(first->get("a/1", dist::Deadline(kPatience)), "1");
}

TYPED_TEST(Stores, WaitForRank0) {
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    this->location.open(0)->get("done/1", dist::Deadline(kPatience));
  });
  this->location.open(1)->set("done/1", "");
  late.join();
}

TYPED_TEST(Stores, ReportLocationWhenRank0IsMissing) {
  const double seconds = seconds_of([&] {
    EXPECT_THAT(message_of<PeerError>([&] {
                  this->location.open_as({1, 2, "job"}, 0.4);
                }),
                HasSubstr("rank 1 waited 0.4 s for rank 0 at "));
  });
  EXPECT_LT(seconds, kAtOnce);
}

TYPED_TEST(Stores, ReportExitOfRank0) {
  auto first = this->location.open(0);
  const auto second = this->location.open(1);
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

TYPED_TEST(Stores, StayAvailableUntilAllRanksDisconnect) {
  // Rank 0 waits one second for the other ranks, less if all of them have disconnected.
  constexpr double kShutdownWait = 0.95;
  bool answered = false, at_once = false;
  for (int tries = 0; tries < kTries && !(answered && at_once); ++tries) {
    auto first = this->location.open(0);
    auto second = this->location.open(1);
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
    const auto next = this->location.open(0);  // the location can be used again
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

TEST(FileStore, ReplacesFileOfKilledJob) {
  const FileLocation location;
  dist::StoreFrame stale{dist::StoreFrame::Kind::hello, "job", "2"};
  location.directory.write(
      "rendezvous", stale.bytes() + dist::StoreFrame{dist::StoreFrame::Kind::set, "a", "stale"}.bytes());
  // Until rank 0 replaces the file, the other ranks do not join it.
  EXPECT_THAT(message_of<PeerError>([&] {
                location.open_as({1, 2, "job"}, 0.2);
              }),
              HasSubstr("from an earlier job"));
  const auto first = location.open(0);
  const auto second = location.open(1);
  EXPECT_EQ(second->get("a/0", dist::Deadline(0)), std::nullopt);
  first->set("a/0", "new");
  EXPECT_EQ(second->get("a/0", dist::Deadline(kPatience)), "new");
}

TEST(FileStore, ReplacesAnEmptyFile) {  // $(mktemp)
  const FileLocation location;
  location.directory.write("rendezvous", "");
  const auto first = location.open(0);
  location.open(1)->set("a/1", "1");
  EXPECT_EQ(first->get("a/1", dist::Deadline(kPatience)), "1");
}

TEST(FileStore, LeavesOtherFilesUnchanged) {
  const FileLocation location;
  location.directory.write("rendezvous", "other data");
  EXPECT_THAT(message_of<UsageError>([&] { location.open(0); }),
              HasSubstr("the file exists and is not a rendezvous file"));
  EXPECT_THAT(message_of<PeerError>([&] {
                location.open_as({1, 2, "job"}, 0.2);
              }),
              HasSubstr("rank 1 waited"));
  std::ifstream in(location.path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "other data");
  EXPECT_THAT(message_of<UsageError>([&] {
                dist::open_file_store("/no/such/directory/x", {0, 2, ""}, dist::Deadline(1));
              }),
              HasSubstr("rank 0 cannot create the file: No such file"));
}

TEST(FileStore, RefusesAFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  const FileLocation location;
  const auto first = location.open(0);
  std::filesystem::permissions(location.directory.path(), std::filesystem::perms::all);
  std::filesystem::permissions(location.path, std::filesystem::perms(0666));
  run_forked_ranks(1, [&](const ForkedRank&) {
    ASSERT_EQ(setegid(65534), 0);
    ASSERT_EQ(seteuid(65534), 0);
    EXPECT_THAT(message_of<PeerError>([&] {
                  location.open_as({1, 2, "job"}, 0.2);
                }),
                HasSubstr("it belongs to user 0, and this rank to user 65534"));
  });
}

TEST(FileStore, AppendsAfterLastCompleteRecord) {
  const FileLocation location;
  const auto first = location.open(0);
  first->set("a/0", "1");
  {
    std::ofstream torn(location.path, std::ios::binary | std::ios::app);
    const std::string bytes =
        dist::StoreFrame{dist::StoreFrame::Kind::set, "torn", std::string(500, 'x')}.bytes();
    torn << bytes.substr(0, bytes.size() / 2);
  }
  const auto second = location.open(1);
  second->set("b/1", "2");
  EXPECT_EQ(first->get("b/1", dist::Deadline(kPatience)), "2");
  EXPECT_EQ(first->get("torn", dist::Deadline(0)), std::nullopt);
  EXPECT_EQ(second->get("a/0", dist::Deadline(0)), "1");
}

TEST(FileStore, RemovesItsFile) {
  const FileLocation location;
  {
    auto first = location.open(0);
    auto second = location.open(1);
    std::thread leaving([&] { first.reset(); });
    second.reset();
    leaving.join();
  }
  EXPECT_TRUE(std::filesystem::is_empty(location.directory.path()));
}

}  // namespace
}  // namespace convoy::testing
