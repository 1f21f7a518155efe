// The programs with and without a GPU. Builds with the emulator use emulated GPUs, whose number is set in the
// environment of each process; other builds use a real GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/kernels/runtime/device_context.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kNoDevice = 7;  // the exit code

ProcessOptions gpus(int count) { return {.environment = {{"CONVOY_EMULATED_GPUS", std::to_string(count)}}}; }

std::vector<double> losses(const Workshop& workshop, const std::string& out) {
  return workshop.numbers(out, "step", "loss");
}

class CudaRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_availability().count == 0) GTEST_SKIP() << "needs a GPU: " << cuda_availability().reason;
  }
  /// Trains for six steps of eight images, unless `more` contains other values.
  ProcessResult train(const std::string& out, Arguments more, const ProcessOptions& options = gpus(1)) const {
    if (std::find(more.begin(), more.end(), "--max-steps") == more.end())
      more.insert(more.end(), {"--max-steps", "6"});
    more.insert(more.end(), {"--batch-size", "8"});
    return run_program(workshop.train_arguments(out, more), options);
  }
  const Workshop workshop;
};

TEST_F(CudaRun, LeNetTrainingMatchesTheCpu) {
  const ProcessResult cpu = train("cpu", {"--device", "cpu"});
  const ProcessResult gpu = train("gpu", {"--device", "cuda"});
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  ASSERT_EQ(gpu.exit_code, 0) << gpu.err;
  const std::vector<double> expected = losses(workshop, "cpu");
  const std::vector<double> found = losses(workshop, "gpu");
  ASSERT_EQ(found.size(), 6U);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << i;
  EXPECT_EQ(workshop.events("gpu", "start").at(0)["devices"].at(0), "cuda:0");
  EXPECT_GT(workshop.events("gpu", "step").back()["memory_bytes"].get<std::int64_t>(), 0);
}

TEST_F(CudaRun, AWrongNumberOfBlocksEndsTheProgramBeforeItReadsTheData) {
  for (const char* wrong : {"7", "-1", "abc", ""}) {
    ProcessOptions options = gpus(1);
    options.environment["CONVOY_CLUSTERS"] = wrong;
    EXPECT_THAT(
        train("run", {"--device", "cuda", "--dataset", "folder", "--data", workshop.path("none")}, options),
        FailsWith(2, fmt::format("CONVOY_CLUSTERS: found '{}', expected 0, 8 or 16", wrong)));
    EXPECT_FALSE(std::filesystem::exists(workshop.path("run")));
  }
}

/// Returns the bytes of "12.5 KiB" at the beginning of a text.
double bytes_in(const std::string& text) {
  std::istringstream in(text);
  double number = 0;
  std::string unit;
  in >> number >> unit;
  return number * (unit.starts_with("K")   ? 1024.0
                   : unit.starts_with("M") ? 1048576.0
                   : unit.starts_with("G") ? 1073741824.0
                                           : 1.0);
}

TEST_F(CudaRun, BatchSizeAutoFollowsTheMemoryOfTheGpu) {
  const auto run = [&](const std::string& out, const std::string& size, double memory) {
    ProcessOptions options = gpus(1);
    options.environment["CONVOY_EMULATED_MEMORY"] = fmt::format("{:.0f}", memory);
    // Without timed algorithms, whose workspaces differ from run to run.
    return run_program(
        workshop.train_arguments(out, {"--device", "cuda:0", "--max-steps", "2", "--eval-every", "0",
                                       "--batch-size", size, "--deterministic"}),
        options);
  };
  const ProcessResult roomy = run("roomy", "auto", 4.0 * (1 << 30));
  ASSERT_THAT(roomy, Succeeds());
  EXPECT_EQ(workshop.events("roomy", "start")[0]["config"]["batch-size"], 320) << "all images";
  // "320; auto: 56.50 KiB for an image and 2.63 MiB besides, of 90% of the 4.00 GiB of the GPU; …"
  const std::string figures = roomy.out.substr(roomy.out.find("; auto: ") + 8);
  const double per_image = bytes_in(figures),
               fixed = bytes_in(figures.substr(figures.find(" image and ") + 11));
  ASSERT_GT(per_image, 10000) << figures;
  ASSERT_THAT(figures, HasSubstr("of 90% of the 4.00 GiB of the GPU; at most all training images"));
  const double memory = (fixed + 80 * per_image) / 0.9;
  const ProcessResult tight = run("tight", "auto", memory);
  ASSERT_THAT(tight, Succeeds());
  const std::int64_t size = workshop.events("tight", "start")[0]["config"]["batch-size"];
  EXPECT_GE(size, 56);
  EXPECT_LE(size, 88) << tight.out;
  EXPECT_LE(workshop.events("tight", "step").back()["memory_bytes"].get<double>(), memory);
  EXPECT_THAT(run("over", std::to_string(3 * size), memory), FailsWith(7, "out of memory on cuda:0"));
}

TEST_F(CudaRun, CheckpointsArePortableBetweenDevices) {
  ASSERT_EQ(train("run", {"--device", "cuda"}).exit_code, 0);
  EXPECT_THAT(train("run", {"--device", "cpu", "--resume", "auto", "--max-steps", "8"}), Succeeds());
  const auto evaluate = [&](const std::string& device) {
    return workshop.evaluated(workshop.path("run"), {"--device", device}, gpus(1));
  };
  const Json on_cpu = evaluate("cpu");
  const Json on_gpu = evaluate("cuda");
  EXPECT_EQ(on_gpu["confusion"], on_cpu["confusion"]);
  EXPECT_NEAR(on_gpu["loss"].get<double>(), on_cpu["loss"].get<double>(), 1e-5);
}

// Without --deterministic, two runs may choose different algorithms by their timings.
TEST_F(CudaRun, DataOnTheDeviceGivesTheSameParameters) {
  ASSERT_EQ(train("there", {"--device", "cuda", "--deterministic", "--data-on-device"}).exit_code, 0);
  ASSERT_EQ(train("here", {"--device", "cuda", "--deterministic", "--no-data-on-device"}).exit_code, 0);
  EXPECT_EQ(workshop.result("there")["parameters_hash"], workshop.result("here")["parameters_hash"]);
  EXPECT_EQ(workshop.result("there")["test_loss"], workshop.result("here")["test_loss"]);
  EXPECT_EQ(losses(workshop, "there"), losses(workshop, "here"));

  EXPECT_THAT(train("cpu", {"--device", "cpu", "--data-on-device"}),
              FailsWith(2, "--data-on-device: found --device cpu, expected a GPU"));
}

TEST_F(CudaRun, AutoSelectsTheGpu) {
  ASSERT_THAT(train("auto", {"--device", "auto", "--max-steps", "1"}), Succeeds());
  EXPECT_EQ(workshop.events("auto", "start").at(0)["devices"].at(0), "cuda:0");
}

/// Programs on a machine without a GPU, or with the emulated GPU removed.
class WithoutGpu : public CudaRun {
 protected:
  void SetUp() override {
    if (cuda_availability().count > 0 && std::getenv("CONVOY_EMULATED_GPUS") == nullptr)
      GTEST_SKIP() << "needs a machine without a GPU";
  }
};

TEST_F(WithoutGpu, CudaDeviceFailsWithADeviceError) {
  EXPECT_THAT(train("run", {"--device", "cuda"}, gpus(0)),
              FailsWith(kNoDevice, "no NVIDIA driver on this machine; use the CPU, or install one"));
}

TEST_F(WithoutGpu, AutoReportsWhyItSelectsTheCpu) {
  EXPECT_THAT(train("run", {"--device", "auto", "--max-steps", "1"}, gpus(0)),
              Prints(HasSubstr("gpu        none: no NVIDIA driver on this machine")));
}

// Profiled steps run op by op between replays of the graph.
TEST_F(CudaRun, ProfiledStepsMatchReplayedSteps) {
  const Arguments flags = {"--device", "cuda", "--deterministic", "--max-steps", "9"};
  const ProcessResult plain = train("plain", flags);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const Arguments profiled = with(flags, {"--profile", "2", "--memory"});
  ASSERT_THAT(train("profiled", profiled),
              Prints(AllOf(HasSubstr("conv2d"), HasSubstr("augmentation"), HasSubstr("optimizer"),
                           HasSubstr("memory at the peak"))));
  EXPECT_EQ(workshop.result("profiled")["parameters_hash"], workshop.result("plain")["parameters_hash"]);
}

// The third step is captured. The fourth one replays it with another momentum of the running statistics.
TEST_F(CudaRun, ActivationCheckpointingGivesTheSameParametersInAGraph) {
  const auto hash = [&](const std::string& out, const Arguments& more) {
    EXPECT_THAT(
        run_program(workshop.train_arguments(out, with({"--device", "cuda", "--deterministic", "--model",
                                                        "resnet20", "--max-steps", "4", "--batch-size", "2",
                                                        "--eval-every", "0", "--precision", "fp16"},
                                                       more)),
                    gpus(1)),
        Succeeds());
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << "not captured";
    return workshop.result(out)["parameters_hash"].get<std::string>();
  };
  const std::string plain = hash("plain", {});
  EXPECT_EQ(hash("checkpointed", {"--activation-checkpointing"}), plain);
  EXPECT_EQ(hash("eager", {"--no-cuda-graph"}), plain);
}

// The step is captured once before the first bias is frozen, and once after it.
TEST_F(CudaRun, TheSpeedRecipeComputesTheSameInGraphs) {
  const auto hash = [&](const std::string& out, const char* graph) {
    const Arguments flags = {"--device",
                             "cuda",
                             "--deterministic",
                             "--model",
                             "speedrun-small",
                             "--batch-size",
                             "2",
                             "--max-steps",
                             "9",
                             "--eval-every",
                             "0",
                             "--precision",
                             "fp16",
                             "--freeze",
                             "whiten=0.03",
                             "--no-tta",
                             graph};
    EXPECT_THAT(run_program(workshop.train_arguments(out, flags), gpus(1)), Succeeds());
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << "not captured";
    return workshop.result(out)["parameters_hash"].get<std::string>();
  };
  EXPECT_EQ(hash("replayed", "--cuda-graph"), hash("eager", "--no-cuda-graph"));
}

TEST_F(CudaRun, MixedBatchesAreTheSameFromTheHostTheDeviceAndAGraph) {
  const Arguments flags = {
      "--device", "cuda",      "--deterministic", "--mixup",          "0.5", "--cutmix",
      "1",        "--augment", "crop=1,jitter=5", "--random-erasing", "0.5", "--max-steps",
      "9"};
  const auto hash = [&](const std::string& out, const Arguments& more) {
    EXPECT_THAT(train(out, with(flags, more)), Succeeds());
    return workshop.result(out)["parameters_hash"].get<std::string>();
  };
  const std::string expected = hash("eager", {"--no-data-on-device", "--no-cuda-graph"});
  EXPECT_EQ(hash("replayed", {"--no-data-on-device"}), expected);
  EXPECT_EQ(hash("resident", {"--data-on-device"}), expected);
  EXPECT_EQ(hash("micro", {"--data-on-device", "--micro-batch-size", "3", "--precision", "fp16"}),
            hash("micro_eager", {"--no-data-on-device", "--no-cuda-graph", "--micro-batch-size", "3",
                                 "--precision", "fp16"}));
}

}  // namespace
}  // namespace convoy::testing
