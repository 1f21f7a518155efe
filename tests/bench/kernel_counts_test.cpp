// Tests that each kernel moves the bytes that kernels/cuda/README.md and convoy-bench-kernels --table state, in
// whole sectors and without bank conflicts. An emulated GPU counts them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/kernels/kernel_rows.h"
#include "emulator/runtime/emulator.h"
#include "tests/bench/counted_step.h"
#include "tests/cuda_emulator/counted/counted_launch.h"
#include "tests/cuda_emulator/counted/gpu_model.h"
#include "tests/testing/op_cases/model_case.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kElements = 1 << 18;

/// Returns the launches of a row's kernels.
std::vector<CountedLaunch> launches_of(const KernelRow& row, const DeviceContext& device) {
  const std::function<void()> run = row.prepare(device);
  run();  // initializes plans and caches
  device.synchronize();
  return counted_launches([&] {
    run();
    device.synchronize();
  });
}

CountedLaunch sum_of(const std::vector<CountedLaunch>& launches) {
  CountedLaunch sum;
  for (const CountedLaunch& launch : launches) sum += launch;
  return sum;
}

// The vectors of one value per channel or row, and partial sums, are not in the stated bytes.
constexpr double kMore = 0.02;

/// Kernels whose loads or stores are not whole sectors, and the reason.
const std::map<std::string, double> kLowerEfficiency = {
    {"augment", 0.5},  // a lane loads 4 neighboring bytes one by one, since crops begin at any byte
};

TEST(KernelCounts, AreTheBytesOfTheTable) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  for (const KernelRow& row : kernel_rows(kElements)) {
    SCOPED_TRACE(row.name);
    const std::vector<CountedLaunch> launches = launches_of(row, device);
    const CountedLaunch all = sum_of(launches);
    const auto array = static_cast<double>(std::max(row.bytes_read, row.bytes_written));
    const auto read = static_cast<double>(row.bytes_read), written = static_cast<double>(row.bytes_written);
    // Crops leave a part of each image out.
    if (row.name != "augment") {
      EXPECT_GE(all.bytes_read, row.bytes_read);
    }
    EXPECT_LE(static_cast<double>(all.bytes_read), read + kMore * array);
    EXPECT_GE(all.bytes_written, row.bytes_written);
    EXPECT_LE(static_cast<double>(all.bytes_written), written + kMore * array);
  }
}

TEST(KernelCounts, AreWholeSectorsWithoutBankConflicts) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  for (const KernelRow& row : kernel_rows(kElements)) {
    SCOPED_TRACE(row.name);
    const CountedLaunch all = sum_of(launches_of(row, device));
    const auto lower = kLowerEfficiency.find(row.name);
    if (lower == kLowerEfficiency.end()) {
      EXPECT_GE(all.sector_efficiency(), 0.95);
    } else {
      EXPECT_GE(all.sector_efficiency(), lower->second);
      EXPECT_LT(all.sector_efficiency(), 0.95) << "needs no exception any more";
    }
    EXPECT_LE(all.bank_conflicts(), 1.05);
  }
}

// Each pixel and filter is read from memory once, and each result is written once. The rows with more
// channels would take a minute.
TEST(ConvolutionCounts, AreTheBytesAndFlopsOfTheTable) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  skip_libraries();
  for (const KernelRow& row : convolution_rows(1)) {
    if (row.name.find("x256/") != std::string::npos || row.name.find("x512/") != std::string::npos) continue;
    SCOPED_TRACE(row.name);
    const std::vector<CountedLaunch> launches = launches_of(row, device);
    ASSERT_EQ(launches.size(), 1u);
    const CountedLaunch& launch = launches.front();
    EXPECT_EQ(launch.bytes_read, row.bytes_read);
    EXPECT_EQ(launch.bytes_written, row.bytes_written);
    EXPECT_EQ(launch.flops, row.flops);
  }
}

TEST(KernelCounts, HaveNoUnorderedLoadsOfOtherBlocks) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  for (const KernelRow& row : kernel_rows(kElements)) {
    SCOPED_TRACE(row.name);
    const std::function<void()> run = row.prepare(device);
    emulator::start_counting();
    run();
    for (const emulator::LaunchCounts& launch : emulator::stop_counting())
      EXPECT_EQ(launch.unordered_load, nullptr);
  }
}

TEST(KernelCounts, NameKernelsAndGrids) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  for (const KernelRow& row : kernel_rows(kElements)) {
    if (row.name != "batch_norm_forward") continue;
    const std::vector<CountedLaunch> launches = launches_of(row, device);
    ASSERT_EQ(launches.size(), 1u);
    EXPECT_EQ(launches[0].name, "batch_norm_cluster_kernel");
    EXPECT_EQ(launches[0].block_threads, 256);
    EXPECT_EQ(launches[0].blocks, 64);
    EXPECT_GT(launches[0].barriers, 0);
  }
}

TEST(KernelCounts, AreALineOfTheProgram) {
  const testing::ProcessResult result = testing::run_program(
      {std::filesystem::read_symlink("/proc/self/exe").parent_path() / "convoy-bench-kernels", "--count",
       "--device", "cuda", "--elements", "131072", "--batch-size", "2",
       "--benchmark_filter=^copy|^resnet18/global_avg_pool"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("| row | launches |"));
  EXPECT_THAT(result.out,
              ::testing::HasSubstr("\n| copy | 1 | 1.05 | 1.05 | 1.05 | 32768 | 100.0 % | 1.00 | 32.0 | "));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("\n\\| resnet18/global_avg_pool[^|]*/backward \\| 1 \\|"));
}

TEST(StepCounts, AreThoseOfAStepOfLeNet) {
  const testing::TempDirectory directory;
  const std::string file = directory.path() / "counts.json";
  const testing::ProcessResult result = count_step({"--model", "lenet", "--batch-size", "4", "--json", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("| kernel or operation | launches |"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("predicted: 0\\.[0-9]+ ms per step"));
  std::ifstream in(file);
  const auto counts = nlohmann::ordered_json::parse(in)["counts"];
  std::map<std::string, int> launches;
  double us = 0;
  for (const auto& launch : counts["launches"]) {
    ++launches[launch["name"]];
    us += launch["predicted_us"].get<double>();
  }
  EXPECT_NEAR(counts["predicted_step_ms"].get<double>(), us / 1e3, 1e-9);
  EXPECT_EQ(launches["conv2d forward"], 2);
  EXPECT_EQ(launches["conv2d backward filter"], 2);
  EXPECT_EQ(launches["conv2d backward data"], 1);  // the images have no gradient
  EXPECT_EQ(launches["gemm"], 3 * 3);              // y, dx and dw of three layers
  EXPECT_EQ(launches["step_kernel"], 1);           // weights and biases together
  EXPECT_EQ(launches["forward_total_kernel"], 1);  // the loss: no other kernel adds, divides or fills
  EXPECT_EQ(launches["backward_kernel"], 1);
  EXPECT_EQ(launches["assign_kernel"], 2);  // the inputs of the graph, and the loss for the log
  for (const char* name : {"map_kernel", "reduce_kernel", "finish_kernel", "copy"})
    EXPECT_FALSE(launches.contains(name)) << name;
}

TEST(StepCounts, AreCommittedForASmallBatch) { expect_committed_counts(8); }

TEST(StepCounts, AreOfOneStep) {
  const testing::ProcessResult result = count_step({"--rounds", "3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(
      result.err,
      "convoy-bench-step: error: --rounds: not supported with --count, which counts one step of one rank\n");
}

const GpuModel gpu{.name = "",
                   .multiprocessors = 10,
                   .multiprocessor_threads = 1024,
                   .memory_bytes_per_second = 1e9,
                   .cache_bytes_per_second = 2e9,
                   .launch_seconds = 1e-6,
                   .host_bytes_per_second = 1e8,
                   .half_flops_per_second = 4e9,
                   .float_flops_per_second = 2e9,
                   .double_flops_per_second = 1e9,
                   .wgmma_flops_per_second = 10e9,
                   .wavefronts_per_second = 1e8};

TEST(GpuModel, PredictsBoundsLaunchesAndPartialWaves) {
  CountedLaunch launch{.blocks = 40, .block_threads = 256, .bytes_read = 600, .bytes_written = 400};
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 2e-6);  // a full wave: 1000 B, and the launch
  launch.blocks = 5;                                       // half of the multiprocessors
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 3e-6);
  launch.blocks = 50;  // 1.25 waves take the time of 2
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 1e-6 + 1e-6 * 2 / 1.25);
  launch.blocks = 40;
  launch.loads.sectors = 100;  // 3200 B through the cache
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 1e-6 + 1.6e-6);
  launch.flops = 20'000;
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 1e-6 + 2e-6);
  launch.shared_wavefronts = 300;
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, launch), 1e-6 + 3e-6);
}

TEST(GpuModel, PredictsLibrariesAndCopies) {
  CountedLaunch gemm{.name = "gemm", .is_kernel = false, .flops = 8000, .bytes_read = 1000};
  for (const auto& [bytes, us] : {std::pair{2, 2.0}, {4, 4.0}, {8, 8.0}}) {
    gemm.element_bytes = bytes;
    EXPECT_DOUBLE_EQ(predicted_seconds(gpu, gemm), (1 + us) * 1e-6);
  }
  gemm.flops = 10;  // then its bytes take longer
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, gemm), 2e-6);
  const CountedLaunch copy{.name = "copy to the GPU", .is_kernel = false, .bytes_written = 1000};
  EXPECT_DOUBLE_EQ(predicted_seconds(gpu, copy), 11e-6);
}

}  // namespace
}  // namespace convoy::bench
