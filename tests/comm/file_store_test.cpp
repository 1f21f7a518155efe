// Stores that are files: what they take over, and what they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/runtime/error.h"
#include "tests/comm/store_places.h"
#include "tests/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST(FileStore, ReplacesWhatAKilledJobLeft) {
  const FilePlace place;
  StoreFrame stale{StoreFrame::Kind::hello, "job", "2"};
  place.folder.write("meeting", stale.bytes() + StoreFrame{StoreFrame::Kind::set, "a", "stale"}.bytes());
  // Before rank 0 is there nobody takes it for the job's.
  EXPECT_THAT(message_of<PeerError>([&] { place.open_as({1, 2, "job"}, 0.2); }), HasSubstr("a former job's"));
  const auto first = place.open(0);
  const auto second = place.open(1);
  EXPECT_EQ(second->get("a", Deadline(0)), std::nullopt);
  first->set("a", "new");
  EXPECT_EQ(second->get("a", Deadline(kPatience)), "new");
}

TEST(FileStore, ReplacesAnEmptyFile) {  // $(mktemp)
  const FilePlace place;
  place.folder.write("meeting", "");
  const auto first = place.open(0);
  place.open(1)->set("a", "1");
  EXPECT_EQ(first->get("a", Deadline(kPatience)), "1");
}

TEST(FileStore, TouchesNoFileOfAnotherKind) {
  const FilePlace place;
  place.folder.write("meeting", "my thesis");
  EXPECT_THAT(message_of<UsageError>([&] { place.open(0); }), HasSubstr("it exists and is no rendezvous"));
  EXPECT_THAT(message_of<PeerError>([&] { place.open_as({1, 2, "job"}, 0.2); }), HasSubstr("rank 1 waited"));
  std::ifstream in(place.path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "my thesis");
  EXPECT_THAT(message_of<UsageError>([&] {
                FileStore("/no/such/folder/x", {0, 2, ""}, Deadline(1));
              }),
              HasSubstr("rank 0 cannot make it: No such file"));
}

TEST(FileStore, WritesBehindTheLastWholeRecord) {
  const FilePlace place;
  const auto first = place.open(0);
  first->set("a", "1");
  {
    std::ofstream torn(place.path, std::ios::binary | std::ios::app);
    const std::string bytes = StoreFrame{StoreFrame::Kind::set, "torn", std::string(500, 'x')}.bytes();
    torn << bytes.substr(0, bytes.size() / 2);
  }
  const auto second = place.open(1);
  second->set("b", "2");
  EXPECT_EQ(first->get("b", Deadline(kPatience)), "2");
  EXPECT_EQ(first->get("torn", Deadline(0)), std::nullopt);
  EXPECT_EQ(second->get("a", Deadline(0)), "1");
}

TEST(FileStore, LeavesNothing) {
  const FilePlace place;
  {
    auto first = place.open(0);
    auto second = place.open(1);
    std::thread leaving([&] { first.reset(); });
    second.reset();
    leaving.join();
  }
  EXPECT_TRUE(std::filesystem::is_empty(place.folder.path()));
}

}  // namespace
}  // namespace convoy::testing
