// Tests of batch norm by clusters of blocks on emulated GPUs, with each access checked
// (kernels/cuda/primitives/channel_clusters.h).
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cuda/primitives/channel_clusters.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/batchnorm_arrays.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using ::testing::ElementsAre;
using testing::expect_near;
using testing::expect_same_bits;
using testing::Fusion;
using ::testing::HasSubstr;
using testing::kFusions;
using testing::kWantAll;
using testing::Norm;
using testing::unit_roundoff;

/// A GPU whose kernels may have clusters of up to `blocks` blocks.
struct ClusterGpu {
  explicit ClusterGpu(const char* blocks, const CudaOptions& options = {})
      : gpu(DeviceContext::create_cuda(0, options)) {
    const testing::ScopedClusters scope(blocks);
    limits();
  }
  kernels::LaunchLimits& limits() const {
    return std::get<std::reference_wrapper<CudaStream>>(gpu.stream()).get().local<kernels::LaunchLimits>();
  }
  DeviceContext gpu;
};

class CudaClusters : public testing::GpuTest {
 protected:
  static void change(void (*change)(emulator::Settings&)) {
    emulator::Settings settings = emulator::settings();
    change(settings);
    emulator::set(settings);
  }
};

/// Returns the numbers of blocks of the kernels that f() launches.
template <class F>
std::vector<unsigned> blocks_of(const F& f) {
  emulator::start_counting();
  f();
  std::vector<unsigned> blocks;
  for (const emulator::LaunchCounts& launch : emulator::stop_counting())
    if (launch.kernel != nullptr) blocks.push_back(launch.grid.x * launch.grid.y);
  return blocks;
}

TEST_F(CudaClusters, HaveTheBlocksThatTheGpuTheCodeAndTheVariablePermit) {
  const emulator::ScopedSettings restored(emulator::settings());
  const auto blocks = [](const char* wanted, const CudaOptions& options = {}) {
    return ClusterGpu(wanted, options).limits().cluster_blocks;
  };
  EXPECT_EQ(blocks("16"), 16);
  EXPECT_EQ(blocks("8"), 8);
  EXPECT_EQ(blocks("0"), 0);
  EXPECT_EQ(blocks("16", {.deterministic = true}), 8);
  change([](emulator::Settings& s) { s.code = 80; });
  EXPECT_EQ(blocks("16"), 0) << "a GPU of 9.0 that compiles PTX of 8.0";
  change([](emulator::Settings& s) { s.capability = 80; });
  EXPECT_EQ(blocks("16"), 0) << "a GPU of 8.0";
  try {
    blocks("4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CONVOY_CLUSTERS: found '4', expected 0, 8 or 16");
  }
}

// The batch norms of ResNet-18 with fewer images: clusters of 16, 8 and 4 blocks; and of fewer rows or more channels.
TEST_F(CudaClusters, ReadEachArrayOnce) {
  const emulator::ScopedSettings restored(emulator::settings());
  const Fusion fusion{.training = true, .relu = true, .residual = false};
  const auto launches = [&](const char* clusters, std::int64_t rows, std::int64_t channels) {
    const ClusterGpu at(clusters);
    Norm<bfloat16> norm(rows, channels);
    return blocks_of([&] {
      forward(at.gpu, norm, fusion);
      backward(at.gpu, norm, fusion, GradMode::overwrite);
    });
  };
  EXPECT_THAT(launches("16", 8193, 16), ElementsAre(16u, 16u));
  EXPECT_THAT(launches("8", 8193, 16), ElementsAre(8u, 8u));
  EXPECT_THAT(launches("16", 1025, 256), ElementsAre(64u, 64u));
  EXPECT_THAT(launches("16", 3, 2128), ElementsAre(67u, 67u));
  EXPECT_EQ(launches("0", 1025, 256).size(), 4u);
  EXPECT_EQ(launches("16", 100, 9).size(), 4u) << "not whole packs";
  change([](emulator::Settings& s) { s.multiprocessors = 1; });
  EXPECT_THAT(launches("16", 8193, 16), ElementsAre(2u, 4u))
      << "one block for each multiprocessor, or what shared memory needs";
}

template <class T>
class CudaClusterNorm : public testing::GpuTest {};
using CudaClusterNormTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaClusterNorm, CudaClusterNormTypes);

// The two-launch kernels are compared too, whose packs no other test launches for small arrays.
TYPED_TEST(CudaClusterNorm, EqualsTheCpu) {
  using T = TypeParam;
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
  const double sums = 64 * unit_roundoff<ComputeType<T>>();
  std::size_t turn = 0;
  for (const char* const clusters : {"0", "8", "16"})
    for (const Fusion& fusion : {Fusion{true, false, false},
                                 {true, true, false},
                                 {true, true, true},
                                 {true, false, true},
                                 {true, false, false, true}})
      for (const auto& [rows, channels] : {std::pair{4200, 8}, {530, 24}, {70, 16}}) {
        if (rows > 1000 && turn++ % 3 != 0) continue;
        SCOPED_TRACE(::testing::Message()
                     << clusters << ": " << rows << " x " << channels << ", " << fusion.text());
        // A GPU rounds the argument of GELU and g to T.
        const double values = (fusion.gelu ? 16 : 8) * (sums + unit_roundoff<T>());
        const double totals = static_cast<double>(rows) * (fusion.gelu ? values : sums);
        const ClusterGpu at(clusters);
        const GradMode mode = turn % 2 == 0 ? GradMode::overwrite : GradMode::accumulate;
        Norm<T> norm(rows, channels);
        Norm<double> exact = norm.widened();
        forward(cpu, exact, fusion);
        forward(at.gpu, norm, fusion);
        expect_near(norm.mean, exact.mean, sums);
        expect_near(norm.running_mean, exact.running_mean, sums);
        expect_near(norm.running_var, exact.running_var, sums);
        expect_near(norm.y, exact.y, values);
        exact = norm.widened();
        const testing::Wanted wanted{true, fusion.residual, true, true};
        backward(cpu, exact, fusion, mode, wanted);
        backward(at.gpu, norm, fusion, mode, wanted);
        expect_near(norm.dx, exact.dx, values);
        expect_near(norm.dresidual, exact.dresidual, values);
        expect_near(norm.dgamma, exact.dgamma, totals);
        expect_near(norm.dbeta, exact.dbeta, totals);
      }
}

// Threads, blocks and streams in several orders; other addresses. CudaLastBlock has graphs and side streams.
TEST_F(CudaClusters, RepeatBits) {
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  const Norm<bfloat16> before(1100, 16);
  Norm<bfloat16> expected = before;
  {
    const ClusterGpu at("16");
    forward(at.gpu, expected, fusion);
    backward(at.gpu, expected, fusion, GradMode::accumulate);
  }
  const auto expect_the_same = [&](const Norm<bfloat16>& found) {
    expect_same_bits(found.y, expected.y);
    expect_same_bits(found.running_var, expected.running_var);
    expect_same_bits(found.dx, expected.dx);
    expect_same_bits(found.dresidual, expected.dresidual);
    expect_same_bits(found.dgamma, expected.dgamma);
    expect_same_bits(found.dbeta, expected.dbeta);
  };
  for_each_order([&] {
    const ClusterGpu at("16");
    Norm<bfloat16> norm = before;
    const testing::Offsets apart{.x = 1, .dy = 3, .y = 1};
    forward(at.gpu, norm, fusion, apart);
    backward(at.gpu, norm, fusion, GradMode::accumulate, kWantAll, apart);
    expect_the_same(norm);
  });
}

enum class Mistake : std::uint8_t { none, no_barrier, no_last_barrier, a_rank_leaves };

/// The numbers of rows of the blocks of a cluster, added as sum_cluster() does.
struct RankTerm {
  __device__ void operator()(int /*rank*/, float first, float second,
                             kernels::cuda::CompensatedSum<float>& firsts,
                             kernels::cuda::CompensatedSum<float>& seconds) const {
    firsts.add(first);
    seconds.add(second);
  }
};

template <Mistake kMistake>
__global__ void count_rows_kernel(kernels::cuda::ChannelTiling tiling, float* counts) {
  using namespace kernels::cuda;
  wait_for_previous_kernel();
  const ThreadTile tile(tiling, 4);
  auto& scratch = kernels::cuda::shared_memory<ClusterScratch<float, 4>>();
  ChannelPairs<float, 4> pairs;
  for (float& first : pairs.first) first = static_cast<float>(tile.rows_of_block);
  if (kMistake == Mistake::a_rank_leaves && tile.row_block == 1) return;
  if (kMistake == Mistake::no_barrier) {
    if (threadIdx.x == 0) scratch.pairs[0][0] = static_cast<float>(tile.rows_of_block);
    __syncthreads();
    const float rows = load_from_block(1 - tile.row_block, scratch.pairs[0][0]);
    if (threadIdx.x == 0 && blockIdx.x == 0) counts[tile.row_block] = rows;
    arrive_at_cluster();
    return wait_for_cluster();
  }
  sum_cluster(scratch, tiling, tile, pairs, RankTerm{}, [&](std::int64_t c, double sum, double) {
    if (tile.row_block == 0) counts[c] = static_cast<float>(sum);
    return ChannelResults<float>{};
  });
  if (kMistake != Mistake::no_last_barrier) wait_for_cluster();
}

/// Returns the emulator's report of a launch.
template <Mistake kMistake>
std::string report_of() {
  const ClusterGpu at("16");
  const testing::DeviceArray<float> counts(at.gpu, Array<float>({16}, 0));
  auto& stream = std::get<std::reference_wrapper<CudaStream>>(at.gpu.stream()).get();
  const bool fits = kernels::cuda::launch_clusters<float>(stream, {1024, 16}, 1, count_rows_kernel<kMistake>,
                                                          counts.view().as<float>());
  EXPECT_TRUE(fits);
  try {
    at.gpu.synchronize();
    if (kMistake == Mistake::none) expect_same_bits(counts.values(), Array<float>({16}, 1024));
  } catch (const DeviceError&) {  // the report says more
  }
  return testing::take_gpu_report();
}

TEST_F(CudaClusters, WithoutABarrierOrWithARankThatLeavesAreReported) {
  EXPECT_EQ(report_of<Mistake::none>(), "");
  EXPECT_THAT(report_of<Mistake::no_barrier>(), HasSubstr("no barrier of the cluster is"));
  EXPECT_THAT(report_of<Mistake::no_last_barrier>(), HasSubstr("ended"));
  EXPECT_THAT(report_of<Mistake::a_rank_leaves>(), HasSubstr("which has ended"));
}

}  // namespace
}  // namespace convoy
