// Tests of sums that are divided among the multiprocessors of a GPU (kernels/cuda/primitives/channel_sums.h).
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cuda/primitives/channel_sums.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/batchnorm_arrays.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Fusion;
using testing::Norm;

class CudaMultiprocessors : public testing::GpuTest {};

DeviceContext gpu_with(int multiprocessors, bool deterministic = false) {
  emulator::Settings settings = emulator::settings();
  settings.multiprocessors = multiprocessors;
  emulator::set(settings);
  return DeviceContext::create_cuda(0, {.deterministic = deterministic});
}

/// Returns the results of both directions of a batch norm on a GPU.
Norm<float> results(const DeviceContext& gpu, Norm<float> norm) {
  constexpr Fusion kFusion{.training = true, .relu = true, .residual = false};
  forward(gpu, norm, kFusion);
  backward(gpu, norm, kFusion, GradMode::overwrite);
  return norm;
}

TEST_F(CudaMultiprocessors, EachGpuRunsOneFullWave) {
  const emulator::ScopedSettings restored(emulator::settings());
  // H100 PCIe, A100, RTX 4090, H100 SXM, B200, RTX PRO 6000, and a slice of a GPU.
  for (const int multiprocessors : {114, 108, 128, 132, 148, 188, 16}) {
    const DeviceContext gpu = gpu_with(multiprocessors);
    const CudaStream& stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
    ASSERT_EQ(stream.multiprocessors(), multiprocessors);
    const int slots = kernels::cuda::kReductionBlocksOfSm * multiprocessors;
    // The batch norms of ResNet-18, batch 128: the rows and channels of its four groups.
    for (const auto& [rows, channels] : {std::pair{131072, 64}, {32768, 128}, {8192, 256}, {2048, 512}}) {
      const kernels::cuda::ChannelTiling tiling =
          kernels::cuda::tile_channels(rows, channels, 8, kernels::cuda::reduction(stream));
      const auto blocks = tiling.tiles * tiling.row_blocks;
      EXPECT_LE(blocks, slots) << rows;
      // Blocks have whole groups of rows, which is why some slots stay free; small arrays have too few groups.
      if (rows == 131072) {
        EXPECT_GE(10 * blocks, 8 * slots) << multiprocessors;
      }
    }
  }
}

TEST_F(CudaMultiprocessors, TicketsSufficeForAnyNumber) {
  const emulator::ScopedSettings restored(emulator::settings());
  const DeviceContext gpu = gpu_with(4096);
  const CudaStream& stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
  for (std::int64_t channels = 8; channels <= 65536; channels *= 2) {
    const auto tiling = kernels::cuda::tile_channels(1 << 20, channels, 8, kernels::cuda::reduction(stream));
    if (tiling.row_blocks > 1) {
      EXPECT_LE(tiling.tiles, CudaStream::kTickets) << channels;
    }
  }
}

TEST_F(CudaMultiprocessors, DeterministicSumsDoNotDependOnTheirNumber) {
  const emulator::ScopedSettings restored(emulator::settings());
  const Norm<float> norm(2048, 16);
  const Norm<float> expected = results(gpu_with(132, true), norm), other = results(gpu_with(2), norm);
  bool differs = false;
  for (std::size_t c = 0; c < 16; ++c) differs |= other.dgamma[c] != expected.dgamma[c];
  EXPECT_TRUE(differs) << "two multiprocessors add in the same order as 132";
  for (const int multiprocessors : {2, 108, 148}) {
    const Norm<float> found = results(gpu_with(multiprocessors, true), norm);
    testing::expect_same_bits(found.y, expected.y);
    testing::expect_same_bits(found.dx, expected.dx);
    testing::expect_same_bits(found.dgamma, expected.dgamma);
    testing::expect_same_bits(found.dbeta, expected.dbeta);
  }
}

}  // namespace
}  // namespace convoy
