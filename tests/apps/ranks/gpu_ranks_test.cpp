// Tests of convoy-train with one emulated GPU per rank and NCCL; ranks are processes, or threads of one
// process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuRanks : public ::testing::Test {
 protected:
  /// Trains LeNet in fp64, in which several ranks and one rank differ by rounding in the 16th digit.
  ProcessResult train(const std::string& out, int ranks, const Arguments& more = {},
                      const std::string& device = "cuda", const std::string& precision = "fp64") const {
    Arguments flags = {"--device", device, "--precision", precision, "--batch-size", "5", "--max-steps", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    return run(out, ranks, flags);
  }

  ProcessResult run(const std::string& out, int ranks, const Arguments& flags) const {
    const Arguments arguments = workshop.train_arguments(out, flags);
    return ranks == 1 ? run_program(arguments) : run_by_mpi(ranks, arguments);
  }

  /// Expects the losses of two runs in fp64 to differ by rounding only.
  void expect_same_losses(const std::string& found_in, const std::string& expected_in) const {
    const std::vector<double> expected = losses_of(expected_in), found = losses_of(found_in);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < found.size(); ++step)
      EXPECT_NEAR(found[step], expected[step], 1e-9 * expected[step]) << found_in << ", step " << step + 1;
  }

  std::vector<double> losses_of(const std::string& out) const {
    std::vector<double> losses;
    for (const Json& step : workshop.events(out, "step")) losses.push_back(step["loss"]);
    losses.push_back(workshop.result(out)["test_loss"]);
    return losses;
  }

  void SetUp() override { write_digits(workshop.path("digits"), 15, 6); }
  Workshop workshop;
};

TEST_F(GpuRanks, TrainLikeASingleRank) {
  const ProcessResult alone = train("alone", 1);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    const std::string out = std::string("two") + graph;
    const ProcessResult two = train(out, 2, {graph});
    ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
    EXPECT_THAT(two.out, HasSubstr("2 on 1 host, nccl"));
    expect_same_losses(out, "alone");
    const Json start = workshop.events(out, "start").front();
    EXPECT_EQ(start["devices"], (Json{"cuda:0", "cuda:1"}));
    for (const Json& step : workshop.events(out, "step")) EXPECT_GE(step["comm_ms"].get<double>(), 0);
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
  }
}

/// A rank without samples cannot replay a graph. Then all ranks run the step op by op.
TEST_F(GpuRanks, TrainWithEmptyShares) {
  const std::vector<Arguments> cases = {
      {"--batch-size", "3", "--micro-batch-size", "1"},  // rank 1 has micro-batches of 1 and 0 samples
      {"--batch-size", "7"},                             // steps of 7, 7 and 1 samples
      {"--batch-size", "7", "--zero", "2"}};
  int number = 0;
  for (Arguments flags : cases) {
    const std::string name = std::to_string(number++);
    flags.insert(flags.end(), {"--device", "cuda", "--precision", "fp64", "--max-steps", "12"});
    const ProcessResult alone = run("alone" + name, 1, flags);
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    flags.insert(flags.end(), {"--comm-timeout", "20", "--check-replicas", "5"});
    const ProcessResult two = run("two" + name, 2, flags);
    ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
    expect_same_losses("two" + name, "alone" + name);
  }
}

/// Rank 1 has enough memory for an eager step, but not for the memory pool of its graph.
TEST_F(GpuRanks, RunOpByOpIfTheCaptureFailsOnOneRank) {
  const Arguments flags = {"--device",
                           "cuda",
                           "--precision",
                           "fp64",
                           "--batch-size",
                           "5",
                           "--max-steps",
                           "6",
                           "--no-data-on-device",
                           "--comm-timeout",
                           "20",
                           "--check-replicas",
                           "5"};
  Arguments program = {"sh", "-c",
                       "[ $OMPI_COMM_WORLD_RANK = 0 ] || export CONVOY_EMULATED_MEMORY=1700000 "
                       "CONVOY_MEMORY_CACHE=off; exec \"$@\"",
                       "sh"};
  const Arguments training = workshop.train_arguments("two", flags);
  program.insert(program.end(), training.begin(), training.end());
  const ProcessResult two = run_by_mpi(2, program);
  ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
  const std::vector<Json> warnings = workshop.events("two", "warning");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0]["message"].get<std::string>(),
              AllOf(HasSubstr("op by op"), HasSubstr("rank 1: out of memory on cuda:1")));
  ASSERT_EQ(run("alone", 1, flags).exit_code, 0);
  expect_same_losses("two", "alone");
}

/// With --debug-comm every step is compared, otherwise the first one and every hundredth.
TEST_F(GpuRanks, ReportAFlippedBitOfASum) {
  const auto train_with_flip = [&](const char* number, const char* steps, const Arguments& more) {
    Arguments program = {"sh", "-c",
                         std::string("[ $OMPI_COMM_WORLD_RANK = 0 ] || export CONVOY_EMULATED_FLIP=") +
                             number + "; exec \"$@\"",
                         "sh"};
    Arguments flags = {"--device", "cuda", "--batch-size", "2", "--bucket-mb", "0.05", "--max-steps", steps};
    flags.insert(flags.end(), more.begin(), more.end());
    const Arguments training = workshop.train_arguments("flipped", flags);
    program.insert(program.end(), training.begin(), training.end());
    return run_by_mpi(2, program);
  };
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    const ProcessResult every = train_with_flip("17", "12", {"--debug-comm", graph});
    EXPECT_EQ(every.exit_code, 4) << every.out << every.err;
    EXPECT_THAT(every.err, HasSubstr("the sum of bucket "));
    EXPECT_THAT(every.err, HasSubstr(" differs after step "));
    EXPECT_THAT(every.err, HasSubstr("rank 0 has the checksum "));
    EXPECT_THAT(every.err, HasSubstr("rank 1 has the checksum "));
  }
  const ProcessResult first = train_with_flip("0", "2", {});
  EXPECT_EQ(first.exit_code, 4) << first.out << first.err;
  EXPECT_THAT(first.err, HasSubstr("the sum of bucket 0 differs after step 1: "));
}

TEST_F(GpuRanks, PrintTheWarningsOfAllRanks) {
  Arguments program = {
      "sh", "-c",
      "cd \"$(mktemp -d -p \"$0\")\"; [ $OMPI_COMM_WORLD_RANK = 0 ] || echo '{' > plans.json; "
      "exec \"$@\"",
      workshop.path("")};
  const Arguments training = workshop.train_arguments(
      "two", {"--device", "cuda", "--plan-cache", "plans.json", "--max-steps", "2", "--batch-size", "4"});
  program.insert(program.end(), training.begin(), training.end());
  const ProcessResult two = run_by_mpi(2, program);
  ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
  const std::vector<Json> warnings = workshop.events("two", "warning");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0]["message"].get<std::string>(),
              StartsWith("rank 1: --plan-cache: plans.json is damaged"));
}

TEST_F(GpuRanks, ShardTheOptimizer) {
  const Arguments flags = {"--optimizer", "adamw", "--clip-norm", "0.5", "--bucket-mb", "0.05"};
  const auto with = [&](const Arguments& more) {
    Arguments all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const ProcessResult alone = train("alone", 1, flags);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const double all_bytes = workshop.result("alone")["optimizer_bytes"];
  int run = 0;
  for (const Arguments& more :
       {Arguments{"--zero", "1", "--cuda-graph"}, Arguments{"--zero", "2", "--no-cuda-graph"},
        Arguments{"--zero", "2", "--cuda-graph", "--micro-batch-size", "2"}}) {
    const std::string out = "divided" + std::to_string(run++);
    SCOPED_TRACE(out);
    const ProcessResult two = train(out, 2, with(more));
    ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
    expect_same_losses(out, "alone");
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
    EXPECT_LE(workshop.result(out)["optimizer_bytes"].get<double>(), all_bytes / 2 + 1024);
  }
}

/// Each host holds all shards, and has two NCCL communicators of its own ranks and their replicas.
TEST_F(GpuRanks, ShardTheOptimizerOnEachHost) {
  if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
  const TwoHosts hosts;
  const Arguments flags = {"--optimizer", "adamw", "--clip-norm", "0.5", "--bucket-mb", "0.05"};
  const ProcessResult alone = train("alone", 1, flags);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const double all_bytes = workshop.result("alone")["optimizer_bytes"];
  int run = 0;
  for (const Arguments& more :
       {Arguments{"--zero", "1", "--cuda-graph"}, Arguments{"--zero", "2", "--no-cuda-graph"},
        Arguments{"--zero", "2", "--cuda-graph", "--micro-batch-size", "1"}}) {
    const std::string out = "hosts" + std::to_string(run++);
    SCOPED_TRACE(out);
    Arguments training = with(flags, more);
    training = with(training, {"--device", "cuda", "--precision", "fp64", "--batch-size", "5", "--max-steps",
                               "4", "--check-replicas", "1", "--zero-group", "host", "--rendezvous",
                               "tcp://" + hosts.address(0) + ":29500"});
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.push_back(std::make_unique<Process>(
          with({"/usr/sbin/ip", "netns", "exec", hosts.name(rank / 2)},
               workshop.train_arguments(out, training)),
          ProcessOptions{.environment = {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", "4"}}}));
    for (const auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    }
    expect_same_losses(out, "alone");
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
    EXPECT_LE(workshop.result(out)["optimizer_bytes"].get<double>(), all_bytes / 2 + 1024);
    EXPECT_GT(workshop.result(out)["optimizer_bytes"].get<double>(), all_bytes / 3);
  }
}

/// In half precision, low-precision copies follow the gathered parameters, and both ranks see the overflow of
/// one.
TEST_F(GpuRanks, ShardTheOptimizerInHalfPrecision) {
  const auto train_fp16 = [&](const std::string& out, const char* zero) {
    const ProcessResult result = train(out, 2, {"--zero", zero, "--deterministic"}, "cuda", "fp16");
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return losses_of(out);
  };
  const std::vector<double> whole = train_fp16("whole", "0");
  for (const char* zero : {"1", "2"}) {
    const std::vector<double> divided = train_fp16(std::string("divided") + zero, zero);
    ASSERT_EQ(divided.size(), whole.size());
    // A sum of two numbers does not depend on their order, so all bits are equal.
    for (std::size_t step = 0; step < whole.size(); ++step) EXPECT_EQ(divided[step], whole[step]) << step;
  }
}

TEST_F(GpuRanks, SynchronizeBatchNorm) {
  const Arguments flags = {"--model", "resnet20", "--image-size", "8", "--sync-bn"};
  const ProcessResult alone = train("alone", 1, flags);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    Arguments more = flags;
    more.insert(more.end(), {graph, "--zero", "2"});
    const std::string out = std::string("two") + graph;
    const ProcessResult two = train(out, 2, more);
    ASSERT_EQ(two.exit_code, 0) << two.out << two.err;
    expect_same_losses(out, "alone");
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
  }
}

/// Each thread has its own GPU, CUDA graph and NCCL communicator.
TEST_F(GpuRanks, ThreadsMatchProcessesBitForBit) {
  const Arguments flags = {"--deterministic", "--check-replicas", "2"};
  const auto with_devices = [&](const char* graph) {
    Arguments more = flags;
    more.insert(more.end(), {"--devices", "2", graph});
    return more;
  };
  ASSERT_EQ(train("processes", 2, flags).exit_code, 0);
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    const std::string out = std::string("threads") + graph;
    const ProcessResult result = train(out, 1, with_devices(graph), "auto");
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("2 on 1 host, nccl; rendezvous: 2 threads of one process"));
    EXPECT_EQ(losses_of(out), losses_of("processes")) << graph;
    EXPECT_EQ(workshop.result(out)["parameters_hash"], workshop.result("processes")["parameters_hash"])
        << graph;
    const Json start = workshop.events(out, "start").front();
    EXPECT_EQ(start["devices"], (Json{"cuda:0", "cuda:1"}));
    EXPECT_EQ(start["config"]["device"], "cuda") << "without an index, which depends on the rank";
    EXPECT_TRUE(workshop.events(out, "warning").empty()) << workshop.events(out, "warning").front().dump();
  }
  // Without the flag, threads capture nothing, and the table at the start says so.
  Arguments by_default = flags;
  by_default.insert(by_default.end(), {"--devices", "2"});
  const ProcessResult eager = train("eager", 1, by_default, "auto");
  EXPECT_EQ(eager.exit_code, 0) << eager.out << eager.err;
  EXPECT_THAT(eager.out, HasSubstr("none: ranks are threads, whose graphs may wait for each other"));
  EXPECT_EQ(workshop.events("eager", "start").front()["config"]["cuda-graph"], false);
  EXPECT_EQ(losses_of("eager"), losses_of("processes"));
  // The configuration file of a run reproduces it.
  const ProcessResult again = workshop.run(
      "convoy-train",
      {"--config", workshop.path("threads--cuda-graph/config.toml"), "--out", workshop.path("again")});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
  EXPECT_EQ(losses_of("again"), losses_of("processes"));
}

/// The gradients of filters run on a stream of their own, for which the communicator's stream waits and the compute stream
/// does not. Streams in random turns, which respect their events alone, find a missing wait.
TEST_F(GpuRanks, SumTheGradientsOfTheSideStreamInAnyOrderOfStreams) {
  const std::vector<Arguments> modes = {
      {"--precision", "fp32", "--bucket-mb", "0.01"},
      {"--precision", "bf16", "--bucket-mb", "0.01", "--grad-dtype", "bf16"},
      {"--precision", "fp32", "--zero", "1"},
      {"--precision", "fp32", "--zero", "2", "--micro-batch-size", "1"}};
  for (std::size_t mode = 0; mode < modes.size(); ++mode) {
    Arguments flags = {
        "--device",        "cuda",           "--batch-size", "4", "--max-steps", "6", "--devices", "2",
        "--no-cuda-graph", "--deterministic"};
    flags.insert(flags.end(), modes[mode].begin(), modes[mode].end());
    std::string expected;
    for (const std::string seed : {"", "1", "2", "3", "4", "5", "6"}) {
      const std::string out = fmt::format("{}-{}", mode, seed);
      std::map<std::string, std::string> variables;
      if (!seed.empty()) variables = {{"CONVOY_EMULATOR_STREAMS", "random"}, {"CONVOY_EMULATOR_SEED", seed}};
      const ProcessResult result =
          run_program(workshop.train_arguments(out, flags), {.environment = variables});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const std::string hash = workshop.result(out)["parameters_hash"];
      if (seed.empty()) expected = hash;
      EXPECT_EQ(hash, expected) << fmt::format("{}, seed {}", fmt::join(modes[mode], " "), seed);
    }
  }
}

/// The survivor owns a graph, for whose end NCCL waits.
TEST_F(GpuRanks, EndWhenARankIsKilledAmongReplays) {
  for (const char* out : {"first", "second", "third"}) {
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.push_back(std::make_unique<Process>(
          workshop.train_arguments(out, {"--device", "cuda", "--batch-size", "5", "--max-steps", "1000000",
                                         "--eval-every", "0", "--log-every", "20"}),
          ProcessOptions{.environment = rank_environment(rank, 2, port)}));
    wait_for_step(workshop, out, 3);
    ranks[1]->send(SIGKILL);
    const ProcessResult survivor = ranks[0]->wait(std::chrono::seconds(20));
    EXPECT_EQ(survivor.exit_code, 4) << survivor.err;
    EXPECT_THAT(survivor.err, HasSubstr("rank 1 on "));
  }
}

TEST_F(GpuRanks, EachThreadReportsTheFailure) {
  const ProcessResult result = train("run", 1, {"--devices", "2", "--lr", "1e300", "--schedule", "constant"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("convoy-train: error: [rank 0] "));
  EXPECT_THAT(result.err, HasSubstr("convoy-train: error: [rank 1] "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2) << result.err;
}

TEST_F(GpuRanks, RecordCollectivesOfTheGpu) {
  const ProcessResult result =
      train("run", 1, {"--devices", "2", "--lr", "1e300", "--schedule", "constant", "--epochs", "20"});
  EXPECT_EQ(result.exit_code, 6) << result.out << result.err;
  const Json recorded = Json::parse(read_text(workshop.path("run") / "post-mortem" / "rank-1.json"));
  EXPECT_THAT(recorded["verdict"].get<std::string>(), HasSubstr("the loss of step"));
  EXPECT_TRUE(std::any_of(recorded["events"].begin(), recorded["events"].end(), [](const Json& event) {
    return event["kind"] == "started" && event["communicator"] == "gradients";
  }));
}

TEST_F(GpuRanks, RefuseMoreDevicesThanGpus) {
  for (const char* device : {"auto", "cuda"}) {
    const ProcessResult result = train("run", 1, {"--devices", "3"}, device);
    EXPECT_EQ(result.exit_code, 7) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--devices 3: found 2 GPUs"));
  }
}

TEST_F(GpuRanks, ThreadsRefuseCpuCommunicator) {
  const ProcessResult result = train("run", 1, {"--devices", "2", "--comm", "thread"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--comm thread: supports only the CPU"));
}

TEST_F(GpuRanks, RefuseMoreRanksThanGpus) {
  const ProcessResult result = train("run", 3);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("would share one GPU"));
  EXPECT_THAT(result.err, HasSubstr("--allow-shared-gpu"));
}

TEST_F(GpuRanks, ShareAGpuWithAllowSharedGpu) {
  const ProcessResult result = train("run", 2, {"--allow-shared-gpu"}, "cuda:0");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST_F(GpuRanks, RefuseCpuCommunicator) {
  const ProcessResult result = train("run", 2, {"--comm", "shm"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--comm shm: supports only the CPU"));
}

}  // namespace
}  // namespace convoy::testing
