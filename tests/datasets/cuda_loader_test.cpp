// Batches for a GPU: made on the CPU and copied, or by the GPU from images that lie in its memory. They are
// the same.
#include <gmock/gmock.h>

#include "kernels/runtime/error.h"
#include "tests/datasets/loader_scene.h"
#include "tests/support/gpu.h"

namespace convoy::testing {
namespace {

class CudaLoader : public GpuTest {
 protected:
  /// The same batches three ways: for the CPU, copied to the GPU, made by the GPU.
  void compare(LoaderOptions options) {
    const ImageSet set = make_set(43);
    options.transform = random_transform();
    const auto expected = run(set, options, 2);
    options.device = Device::cuda(0);
    EXPECT_EQ(run(set, options, 2), expected);
    options.resident = true;
    for_each_order([&] { EXPECT_EQ(run(set, options, 2), expected); });
  }
};

TEST_F(CudaLoader, BatchesAreThoseOfTheCpu) { compare({.global_batch = 16, .seed = 5}); }
TEST_F(CudaLoader, InOrder) { compare({.global_batch = 7, .shuffle = false}); }
TEST_F(CudaLoader, InMicroBatchesOfOneRankOfThree) {
  compare({.global_batch = 16, .micro_batch = 2, .rank = 2, .world = 3});
}
TEST_F(CudaLoader, WithoutWorkers) { compare({.global_batch = 16, .workers = 0}); }

TEST_F(CudaLoader, GoesOnFromAnywhere) {
  const ImageSet set = make_set(43);
  const LoaderOptions options{
      .global_batch = 8, .transform = random_transform(), .device = Device::cuda(0), .resident = true};
  const auto expected = run(set, options, 3);
  DataLoader loader(set, options);
  loader.seek(2, 3);
  const std::vector<Copy> late(expected[2].begin() + 3, expected[2].end());
  EXPECT_EQ(rest_of_epoch(loader), late);
  loader.seek(1, 0);
  EXPECT_EQ(rest_of_epoch(loader), expected[1]);
}

TEST_F(CudaLoader, ABatchOutlivesItsEpoch) {
  const ImageSet set = make_set(24);
  DataLoader loader(set, {.global_batch = 24, .device = Device::cuda(0), .resident = true});
  const Batch first = loader.next_update().front();
  const Copy before = copy_of(first);
  loader.next_update();  // the end of the epoch
  loader.next_update();
  EXPECT_EQ(copy_of(first), before);
}

TEST(ResidentBatches, NeedAGpu) {
  const ImageSet set = make_set(4);
  EXPECT_THROW(DataLoader(set, {.resident = true}), UsageError);
  EXPECT_THROW(DataLoader(set, {.device = Device::cpu(), .resident = true}), UsageError);
}

}  // namespace
}  // namespace convoy::testing
