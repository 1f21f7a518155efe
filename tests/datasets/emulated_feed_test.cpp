// Uploads of batches when GPU memory or pinned host memory is exhausted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "emulator/runtime/emulator.h"
#include "tests/datasets/loader_fixture.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

using emulator::ScopedSettings;
using ::testing::HasSubstr;

constexpr std::size_t kBatchBytes = 16 * (kPixels * sizeof(float) + 2 * sizeof(std::int32_t));

class EmulatedFeed : public GpuTest {
 protected:
  static std::string failure(data::DataLoader& loader) {
    try {
      loader.next_step();
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "no DeviceError";
  }
};

TEST_F(EmulatedFeed, RecoversFromExhaustedPinnedMemory) {
  const data::ImageSet set = make_set(160);
  for (const int workers : {0, 2}) {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    emulator::Settings settings = emulator::settings();
    settings.pinned_bytes = kBatchBytes / 2;
    std::optional<ScopedSettings> scarce(settings);
    data::DataLoader loader(set, {.global_batch = 16, .workers = workers, .prefetch = 2, .device = gpu});
    EXPECT_THAT(failure(loader), HasSubstr("out of memory on the pinned host memory of cuda:0: asked for"));
    EXPECT_THAT(failure(loader), HasSubstr("out of memory on the pinned host memory of cuda:0: asked for"));
    scarce.reset();
    EXPECT_THAT(failure(loader), HasSubstr("out of memory")) << "until a seek";
    loader.seek(0, 0);
    EXPECT_EQ(loader.next_step().front().step, 0);
    EXPECT_EQ(loader.next_step().front().step, 1);
  }
}

TEST_F(EmulatedFeed, RecoversFromExhaustedGpuMemory) {
  const data::ImageSet set = make_set(160);
  for (const int workers : {0, 2}) {
    emulator::Settings settings = emulator::settings();
    constexpr std::size_t kTicketBytes = CudaStream::kTickets * sizeof(unsigned);  // of each stream
    settings.memory_bytes = 3 * kBatchBytes + kBatchBytes / 2 + 2 * kTicketBytes;
    const ScopedSettings scarce(settings);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const data::LoaderOptions options{.global_batch = 16, .workers = workers, .prefetch = 2, .device = gpu};
    const auto expected = run(set, options, 1);
    data::DataLoader loader(set, options);
    std::vector<std::vector<data::Batch>> held;
    for (int i = 0; i < 3; ++i)
      held.push_back(loader.next_step());  // there may be no memory for the uploads ahead
    EXPECT_THAT(failure(loader), HasSubstr("out of memory on cuda:0: asked for"));
    EXPECT_THAT(failure(loader), HasSubstr("out of memory on cuda:0: asked for"));
    held.clear();
    loader.seek(0, 3);
    const std::vector<Copy> rest(expected[0].begin() + 3, expected[0].end());
    EXPECT_EQ(rest_of_epoch(loader), rest);
  }
}

}  // namespace
}  // namespace convoy::testing
