// Tests of file stores: stale files, files of other formats, and cleanup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "convoy/kernels/base/error.h"
#include "tests/comm/cluster/store_locations.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

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
