// Tests of training with sharded optimizer state and gradients: --zero 1 and 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int kImages = 25, kTestImages = 8;

/// A combination of settings. A batch has 12 samples, 4 on each of three ranks.
struct ZeroRow {
  int zero;
  bool sync_bn;
  int micro_batch;  // 0: no accumulation
  const char* comm;
};

std::ostream& operator<<(std::ostream& out, const ZeroRow& row) {
  return out << "zero" << row.zero << (row.sync_bn ? "_sync" : "_lenet") << "_micro" << row.micro_batch << '_'
             << row.comm;
}

std::vector<std::string> cells_of(const ZeroRow& row) {
  return {"zero " + std::to_string(row.zero), row.sync_bn ? "sync-bn" : "lenet",
          "micro " + std::to_string(row.micro_batch), row.comm};
}

/// A pairwise covering array: every two values of different columns occur in a common row.
constexpr ZeroRow kRows[] = {
    {0, true, 0, "mpi"},  {0, false, 2, "shm"}, {0, true, 2, "thread"},  {0, false, 0, "tcp"},
    {1, false, 0, "mpi"}, {1, true, 2, "shm"},  {1, false, 2, "thread"}, {1, true, 0, "tcp"},
    {2, true, 2, "mpi"},  {2, false, 0, "shm"}, {2, true, 0, "thread"},  {2, false, 2, "tcp"},
};

TEST(ZeroRows, CoverAllPairsOfValues) {
  std::set<std::string> found;
  std::vector<std::set<std::string>> values(4);
  for (const ZeroRow& row : kRows) {
    const std::vector<std::string> cells = cells_of(row);
    for (std::size_t a = 0; a < cells.size(); ++a) {
      values[a].insert(cells[a]);
      for (std::size_t b = 0; b < a; ++b) found.insert(cells[b] + " with " + cells[a]);
    }
  }
  EXPECT_EQ(values[0].size(), 3U);
  EXPECT_EQ(values[3].size(), 4U);
  for (std::size_t a = 0; a < values.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      for (const std::string& first : values[b])
        for (const std::string& second : values[a])
          EXPECT_TRUE(found.contains(first + " with " + second)) << first << " with " << second;
}

Arguments flags_of(const ZeroRow& row) {
  Arguments flags = {"--batch-size", "12",   "--epochs",       "0",     "--max-steps", "5",
                     "--precision",  "fp64", "--optimizer",    "adamw", "--clip-norm", "0.5",
                     "--bucket-mb",  "0.05", "--deterministic"};
  if (row.sync_bn) flags.insert(flags.end(), {"--model", "resnet20", "--image-size", "8", "--sync-bn"});
  return flags;
}

class Zero : public ::testing::TestWithParam<ZeroRow> {};

TEST_P(Zero, TrainsLikeASingleRank) {
  constexpr int kRanks = 3;
  const ZeroRow& row = GetParam();
  Workshop workshop;
  write_digits(workshop.path("digits"), kImages, kTestImages);
  Arguments flags = flags_of(row);
  if (row.micro_batch > 0) flags.insert(flags.end(), {"--micro-batch-size", std::to_string(row.micro_batch)});
  Arguments divided = flags;
  divided.insert(divided.end(), {"--zero", std::to_string(row.zero)});
  const Outcome found = train_on(workshop, "divided", kRanks, row.comm, divided);
  // Synchronized batch norm normalizes over a micro-batch of all ranks. With several micro-batches per step,
  // a single rank has no micro-batch of the same samples.
  const bool alone = !row.sync_bn || row.micro_batch == 0;
  const Outcome expected =
      alone ? train_on(workshop, "alone", 1, "", flags) : train_on(workshop, "whole", kRanks, "shm", flags);
  ASSERT_EQ(expected.losses.size(), 5U);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  // Every third step has only the last sample of an epoch, so two ranks have none.
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-9 * expected.losses[step])
        << "step " << step + 1;
  EXPECT_NEAR(found.test_loss, expected.test_loss, 1e-9 * expected.test_loss);
  EXPECT_EQ(found.test_count, kTestImages);
}

INSTANTIATE_TEST_SUITE_P(Pairwise, Zero, ::testing::ValuesIn(kRows), [](const auto& row) {
  std::ostringstream name;
  name << row.param;
  return name.str();
});

class ZeroRuns : public ::testing::Test {
 protected:
  ZeroRuns() { write_digits(workshop.path("digits"), kImages, kTestImages); }
  Workshop workshop;
};

TEST_F(ZeroRuns, ResumeWithOtherWorldSizes) {
  const Arguments flags = {"--batch-size", "12",   "--epochs",     "0", "--precision",    "fp64",
                           "--optimizer",  "adam", "--save-every", "2", "--deterministic"};
  const auto with = [&](const Arguments& more) {
    Arguments all = flags;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Outcome whole = train_on(workshop, "whole", 1, "", with({"--max-steps", "8"}));
  ASSERT_EQ(whole.losses.size(), 8U);
  // World sizes 4, 2, 3 and 1: each run resumes from a checkpoint of the previous one. All runs have the
  // schedule of 8 steps, and the next run takes an intermediate checkpoint.
  std::string from = "auto";
  const std::vector<std::pair<int, const char*>> legs = {{4, "2"}, {2, "1"}, {3, "0"}, {1, "2"}};
  for (std::size_t leg = 0; leg < legs.size(); ++leg) {
    const auto& [ranks, zero] = legs[leg];
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, --zero " << zero);
    const std::string out = "leg" + std::to_string(leg);
    const Outcome found =
        train_on(workshop, out, ranks, "shm",
                 with({"--max-steps", "8", "--zero", zero, "--resume", from, "--keep-last", "0"}));
    const std::size_t first = 2 * leg;  // steps before the checkpoint
    ASSERT_EQ(found.losses.size(), whole.losses.size() - first);
    for (std::size_t step = 0; step < found.losses.size(); ++step)
      EXPECT_NEAR(found.losses[step], whole.losses[first + step], 1e-9 * whole.losses[first + step]);
    EXPECT_NEAR(found.test_loss, whole.test_loss, 1e-9 * whole.test_loss);
    from = (workshop.path(out) / "checkpoints" / ("step_00000" + std::to_string(first + 2))).string();
    ASSERT_TRUE(std::filesystem::exists(from));
  }
}

/// Returns the names of the files of a training's last checkpoint.
std::vector<std::string> files_of_checkpoint(const std::filesystem::path& out) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_of(out).back()))
    names.push_back(entry.path().filename());
  return names;
}

TEST_F(ZeroRuns, WriteOneShardPerRank) {
  const Arguments flags = {"--max-steps", "3", "--optimizer", "adam", "--zero", "1"};
  ASSERT_EQ(run_by_mpi(2, workshop.train_arguments("run", flags)).exit_code, 0);
  EXPECT_THAT(
      files_of_checkpoint(workshop.path("run")),
      UnorderedElementsAre("model.safetensors", "manifest.json", "optimizer-00001-of-00002.safetensors",
                           "optimizer-00002-of-00002.safetensors"));
}

TEST_F(ZeroRuns, WriteOneFileIfARankDoesNotSeeTheDirectory) {
  if (!may_mount()) GTEST_SKIP() << kNeedsMount;
  const std::filesystem::path out = workshop.path("run");
  std::filesystem::create_directory(out);
  // Rank 1 has another, empty file system at the path of rank 0's directory.
  Arguments program = {"/bin/sh", "-c",
                       R"(if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec "$@"; fi
                          exec unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$0" "$@")",
                       out.string()};
  const Arguments train = workshop.train_arguments(
      "run", {"--max-steps", "3", "--optimizer", "adam", "--zero", "1", "--save-every", "2"});
  program.insert(program.end(), train.begin(), train.end());
  const ProcessResult result = run_by_mpi(2, program);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(files_of_checkpoint(out),
              UnorderedElementsAre("model.safetensors", "manifest.json", "optimizer.safetensors"));
  const Arguments more = {"--max-steps", "4", "--optimizer", "adam", "--resume", "auto"};
  EXPECT_EQ(workshop.train("run", more).exit_code, 0) << "any number of ranks loads it";
}

TEST_F(ZeroRuns, ReduceMemoryPerRank) {
  const auto result = [&](const std::string& zero, int ranks) {
    train_on(workshop, "zero" + zero, ranks, "shm",
             {"--batch-size", "16", "--micro-batch-size", "1", "--max-steps", "3", "--optimizer", "adamw",
              "--zero", zero, "--bucket-mb", "0.1", "--check-replicas", "1"});
    return workshop.result("zero" + zero);
  };
  constexpr int kRanks = 4, kParameters = 44426;
  const Json none = result("0", kRanks), first = result("1", kRanks), second = result("2", kRanks);
  const auto bytes = [](const Json& of, const char* what) { return of[what].get<double>(); };
  EXPECT_EQ(bytes(none, "optimizer_bytes"), 2 * kParameters * 4);
  for (const Json& sharded : {first, second})
    EXPECT_LE(bytes(sharded, "optimizer_bytes"), bytes(none, "optimizer_bytes") / kRanks + 1024);
  // LeNet's largest bucket is a parameter of more than 0.1 MiB: 120 x 256 of fc1.
  EXPECT_LE(bytes(second, "gradient_bytes"),
            kParameters * 4 / kRanks + 2 * (120 * 256 * 4 + 64 * kRanks) + 1024);
  EXPECT_LE(bytes(first, "gradient_bytes"), kParameters * 4 + 2048);
}

TEST_F(ZeroRuns, RefuseUnsupportedCombinations) {
  const ProcessResult bf16 =
      run_program(workshop.train_arguments("run", {"--zero", "1", "--grad-dtype", "bf16"}));
  EXPECT_EQ(bf16.exit_code, 2);
  EXPECT_THAT(bf16.err, HasSubstr("--grad-dtype bf16: not supported with --zero 1"));
  const ProcessResult none = run_program(workshop.train_arguments("run", {"--zero-group", "host"}));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--zero-group host: found --zero 0, expected 1 or 2"));
  const ProcessResult three = run_program(workshop.train_arguments("run", {"--zero", "3"}));
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_THAT(three.err, HasSubstr("--zero"));
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run")));
}

/// Two hosts: this one, and a PID namespace of it, whose ranks share no memory with the others.
class ZeroHosts : public ZeroRuns {
 protected:
  void SetUp() override {
    Arguments probe = kContainer;
    probe.push_back("/bin/true");
    if (run_program(probe).exit_code != 0) GTEST_SKIP() << "needs the permission to create PID namespaces";
  }
  /// Trains with `first` ranks on this host and `second` ones on the other, which sees an empty directory at the path
  /// `hidden` unless that is empty. Returns the results of the processes, of which the last one has the second host.
  std::vector<ProcessResult> train(const std::string& out, int first, int second, const Arguments& flags,
                                   const std::string& hidden = "") const {
    const Arguments program = workshop.train_arguments(out, flags);
    const int port = free_port();
    std::vector<std::unique_ptr<Process>> processes;
    std::string others;
    for (int rank = 0; rank < first + second; ++rank)
      if (rank < first)
        processes.push_back(std::make_unique<Process>(
            program, ProcessOptions{.environment = rank_environment(rank, first + second, port)}));
      else
        others += std::to_string(rank) + " ";
    Arguments inside = kContainer;
    inside.insert(inside.end(), {"sh", "-c",
                                 R"([ -z "$HIDDEN" ] || mount -t tmpfs none "$HIDDEN" || exit 99
                                    for rank in $RANKS; do RANK=$rank "$@" & pids="$pids $!"; done
                                    for pid in $pids; do wait $pid || code=$?; done
                                    exit ${code:-0})",
                                 "sh"});
    inside.insert(inside.end(), program.begin(), program.end());
    Environment environment = rank_environment(first, first + second, port);
    environment.insert({{"RANKS", others}, {"HIDDEN", hidden}});
    processes.push_back(std::make_unique<Process>(inside, ProcessOptions{.environment = environment}));
    std::vector<ProcessResult> results;
    for (const auto& process : processes) results.push_back(process->wait());
    return results;
  }
  void expect_success(const std::vector<ProcessResult>& results) const {
    for (const ProcessResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }

  const Arguments kContainer = {"/usr/bin/unshare", "--pid", "--mount-proc", "--fork", "--kill-child"};
};

TEST_F(ZeroHosts, HoldAllShardsEachAndResumeWithOtherGroups) {
  const Arguments flags = {"--batch-size",
                           "12",
                           "--micro-batch-size",
                           "2",
                           "--epochs",
                           "0",
                           "--precision",
                           "fp64",
                           "--optimizer",
                           "adam",
                           "--clip-norm",
                           "0.5",
                           "--save-every",
                           "2",
                           "--max-steps",
                           "8",
                           "--bucket-mb",
                           "0.05",
                           "--keep-last",
                           "0",
                           "--deterministic",
                           "--log-every",
                           "1"};
  const Outcome whole = train_on(workshop, "whole", 1, "", flags);
  ASSERT_EQ(whole.losses.size(), 8U);
  // Each run resumes from a checkpoint of the previous one, and takes an intermediate checkpoint.
  struct Leg {
    int first, second;  // ranks by host
    Arguments flags;
    std::size_t shards;  // files of the optimizer's state
  };
  const std::vector<Leg> legs = {{2, 2, {"--zero", "2", "--zero-group", "host"}, 2},
                                 {2, 2, {"--zero", "1", "--zero-group", "world"}, 4},
                                 {3, 3, {"--zero", "1", "--zero-group", "host"}, 3},
                                 {2, 1, {"--zero", "0"}, 1}};
  std::string from = "auto";
  for (std::size_t leg = 0; leg < legs.size(); ++leg) {
    SCOPED_TRACE(::testing::Message() << "leg " << leg);
    const std::string out = "leg" + std::to_string(leg);
    Arguments more = with(with(flags, legs[leg].flags), {"--resume", from, "--check-replicas", "1"});
    expect_success(train(out, legs[leg].first, legs[leg].second, more));
    const std::size_t first = 2 * leg;  // steps before the checkpoint
    const std::vector<double> losses = workshop.numbers(out, "step", "loss");
    ASSERT_EQ(losses.size(), whole.losses.size() - first);
    for (std::size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(losses[step], whole.losses[first + step], 1e-9 * whole.losses[first + step]);
    EXPECT_NEAR(workshop.result(out)["test_loss"].get<double>(), whole.test_loss, 1e-9 * whole.test_loss);
    EXPECT_EQ(files_of_checkpoint(workshop.path(out)).size(), 2 + legs[leg].shards);
    from = workshop.checkpoint(out, static_cast<int>(first) + 2);
    ASSERT_TRUE(std::filesystem::exists(from));
  }
}

TEST_F(ZeroHosts, WriteTheShardsOfTheFirstHostWithoutASharedFileSystem) {
  if (!may_mount()) GTEST_SKIP() << kNeedsMount;
  const std::filesystem::path out = workshop.path("run");
  std::filesystem::create_directory(out);
  const Arguments flags = {"--max-steps", "3", "--save-every", "2",    "--optimizer", "adam",
                           "--zero",      "1", "--zero-group", "host", "--trace"};
  expect_success(train("run", 2, 2, flags, out));
  EXPECT_THAT(read_text(out / "trace.json"), HasSubstr("bucket 1 ("));
  EXPECT_THAT(files_of_checkpoint(out), UnorderedElementsAre("model.safetensors", "manifest.json",
                                                             "optimizer-00001-of-00002.safetensors",
                                                             "optimizer-00002-of-00002.safetensors"));
  EXPECT_EQ(workshop.train("run", {"--max-steps", "4", "--optimizer", "adam", "--resume", "auto"}).exit_code,
            0);
}

TEST_F(ZeroHosts, RefuseHostsWithDifferentNumbersOfRanks) {
  const Arguments flags = {"--zero", "1", "--zero-group", "host", "--data", "missing"};
  for (const ProcessResult& result : train("run", 2, 1, flags)) {
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("--zero-group host: found hosts with 1 to 2 ranks ("));
    EXPECT_THAT(result.err, HasSubstr("expected the same number, 2 or more, on each"));
  }
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run")));
}

TEST_F(ZeroHosts, OfOneHostEqualTheWorldBitwise) {
  const auto hash = [&](const char* group) {
    return train_on(workshop, group, 2, "shm", {"--zero", "2", "--zero-group", group, "--max-steps", "4"})
        .hash;
  };
  EXPECT_EQ(hash("host"), hash("world"));
}

}  // namespace
}  // namespace convoy::testing
