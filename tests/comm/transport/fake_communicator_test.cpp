// Tests of the fake communicator.
#include "tests/testing/support/fake_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;

TEST(FakeCommunicator, RecordsLaunches) {
  FakeCommunicator comm(1, 3);
  std::vector<float> data = {1, 2, 3};
  std::vector<float> all(9, -1);
  const View view{data.data(), {3}, DType::f32};
  comm.all_reduce(view);
  comm.all_gather(view, View{all.data(), {9}, DType::f32});
  comm.barrier();
  ASSERT_EQ(comm.launches().size(), 3U);
  EXPECT_EQ(to_string(comm.launches()[0].collective), "all-reduce 0 (3 f32)");
  EXPECT_EQ(comm.launches()[0].data, data.data());
  EXPECT_EQ(comm.launches()[0].bytes, 12U);
  EXPECT_LE(comm.launches()[0].time, comm.launches()[1].time);
  EXPECT_EQ(comm.launches()[2].bytes, 0U);
  EXPECT_THAT(data, ElementsAre(1, 2, 3));
  EXPECT_THAT(all, ElementsAre(-1, -1, -1, 1, 2, 3, -1, -1, -1));
}

TEST(FakeCommunicator, CallsTheTestInPlaceOfOtherRanks) {
  FakeCommunicator comm(0, 2, [](const FakeCommunicator::Launch&, View data) { *data.as<float>() += 10; });
  float value = 1;
  comm.all_reduce(View{&value, {1}, DType::f32});
  EXPECT_EQ(value, 11);
  comm.abort("test");
  EXPECT_THROW(comm.barrier(), PeerError);
}

}  // namespace
}  // namespace convoy::testing
