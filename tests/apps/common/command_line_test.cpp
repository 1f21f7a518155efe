// Invalid command lines: a one-line error, the documented exit code, and the nearest valid name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "convoy/apps/common/command_line.h"
#include "convoy/kernels/base/error.h"
#include "convoy/version.h"
#include "tests/apps/programs.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Checks that stderr is one line that begins with the program's name. Ranks that are threads of one process
/// may print one line each.
void expect_one_line(const ProcessResult& result, const std::string& name, int max_lines = 1) {
  std::istringstream lines(result.err);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line, StartsWith(name + ": error: "));
  EXPECT_GE(count, 1);
  EXPECT_LE(count, max_lines) << result.err;
}

struct Mistake {
  Arguments arguments;
  int exit_code;
  const char* message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  for (const std::string& argument : mistake.arguments) *out << argument << ' ';
}

class TrainMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(TrainMistakes, PrintOneLinePerRankAndReturnTheDocumentedCode) {
  const TempDirectory directory;
  std::filesystem::create_symlink("loop", directory.path() / "loop");
  Arguments arguments = {program("convoy-train")};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  // In an empty directory without CONVOY_DATA, so that no training and no download starts.
  const ProcessResult result = run_program(
      arguments, {.environment = {{"CONVOY_DATA", ""}, {"XDG_CACHE_HOME", directory.path().string()}},
                  .directory = directory.path(),
                  .input = ""});
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  const bool has_two_ranks = std::ranges::search(arguments, Arguments{"--devices", "2"}).size() == 2;
  expect_one_line(result, "convoy-train", has_two_ranks ? 2 : 1);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "runs"));
}

INSTANTIATE_TEST_SUITE_P(
    Usage, TrainMistakes,
    ::testing::Values(
        Mistake{{"--epohcs", "3"}, 2, "--epohcs: unknown flag; did you mean '--epochs'?"},
        Mistake{{"--batchsize=3"}, 2, "did you mean '--batch-size'?"},
        Mistake{{"--no-nesterof"}, 2, "did you mean '--no-nesterov'?"},
        Mistake{{"--learning-rate", "0.1"}, 2, "--learning-rate: unknown flag; did you mean '--lr'?"},
        Mistake{{"--learning_rate=0.1"}, 2, "did you mean '--lr'?"},
        Mistake{{"--gpus", "2"}, 2, "did you mean '--devices'?"},
        Mistake{{"--fp16"}, 2, "did you mean '--precision'?"},
        Mistake{{"--amp"}, 2, "did you mean '--precision'?"},
        Mistake{{"--backend", "nccl"}, 2, "did you mean '--comm'?"},
        Mistake{{"--init-method", "env://"}, 2, "did you mean '--rendezvous'?"},
        Mistake{{"--gradient-accumulation-steps", "4"}, 2, "did you mean '--micro-batch-size'?"},
        Mistake{{"--nproc_per_node", "4"}, 2, "unknown flag; ranks come from the launcher: mpirun -n N"},
        Mistake{{"--local_rank=0"}, 2, "unknown flag; ranks come from the launcher"},
        Mistake{{"--pretrained"}, 2, "did you mean '--init-from'?"},
        Mistake{{"--early-stopping", "3"}, 2, "did you mean '--patience'?"},
        Mistake{{"--val-split", "0.1"}, 2, "did you mean '--validation'?"},
        Mistake{{"--betas", "0.9", "0.99"}, 2, "did you mean '--adam-betas'?"},
        Mistake{{"--mixup_alpha", "0.2"}, 2, "did you mean '--mixup'?"},
        Mistake{{"--model-ema"}, 2, "did you mean '--ema'?"},
        Mistake{{"--gradient-checkpointing"}, 2, "did you mean '--activation-checkpointing'?"},
        Mistake{
            {"--hostfile", "hosts"}, 2, "unknown flag; hosts come from the launcher: mpirun --hostfile FILE"},
        Mistake{{"--wandb"}, 2, "unknown flag; convoy-report RUN --tensorboard DIR writes event files"},
        Mistake{{"--deepspeed_config", "x.json"}, 2, "did you mean '--deepspeed-config'?"},
        Mistake{{"--xyz"}, 2, "--xyz: unknown flag (--help-all lists all flags)"},
        Mistake{{"resnet20"}, 2, "'resnet20': unexpected argument"},
        Mistake{{"--model", "resnet21"}, 2, "did you mean 'resnet20'?"},
        Mistake{{"--dataset", "cifar"}, 2, "did you mean 'cifar10'?"},
        Mistake{{"--optimizer", "adma"}, 2, "did you mean 'adam'?"},
        Mistake{{"--schedule", "cosin"}, 2, "did you mean 'cosine'?"},
        Mistake{{"--dataset", "shapes", "--image-cache", "cache"},
                2,
                "--image-cache: found --dataset shapes, which"},
        Mistake{{"--cpu-level", "avx2"}, 2, "expected x86-64, x86-64-v2, x86-64-v3, x86-64-v4"},
        Mistake{{"--cpu-level", "x86-64-v2"},
                2,
                "--cpu-level (or CONVOY_CPU_LEVEL) x86-64-v2: this build has CPU kernels for "},
        Mistake{{"--precision", "fp8"}, 2, "expected fp64, fp32, tf32, bf16, fp16"},
        Mistake{{"--precision", "fp16", "--device", "cpu"}, 2, "--precision fp16"},
        Mistake{{"--epochs", "three"}, 2, "--epochs: found 'three', expected a whole number"},
        Mistake{{"--epochs", "1.5"}, 2, "expected a whole number"},
        Mistake{{"--epochs", "-1"}, 2, "--epochs: found -1, expected at least 0"},
        Mistake{{"--epochs"}, 2, "--epochs: its value is missing"},
        Mistake{{"--lr", "--out", "x"}, 2, "--lr: its value is missing, found the flag --out"},
        Mistake{{"--data", "--no-download"}, 2, "--data: its value is missing, found the flag --no-download"},
        Mistake{{"--lr", "nan"}, 2, "--lr: found 'nan', expected a number"},
        Mistake{{"--lr", "-0.1"}, 2, "--lr: found -0.1, expected at least 0"},
        Mistake{{"--lr", "0.1", "--lr", "x"}, 2, "--lr: found 'x', expected a number"},
        Mistake{{"--label-smoothing", "1"}, 2, "--label-smoothing: found 1, expected less than 1"},
        Mistake{{"--momentum", "1"}, 2, "--momentum: found 1, expected less than 1"},
        Mistake{{"--warmup", "1"}, 2, "--warmup: found 1, expected at most"},
        Mistake{{"--seed", "99999999999999999999"}, 2, "--seed"},
        Mistake{{"--comm", "smoke"}, 2, "--comm: found 'smoke'"},
        Mistake{{"--devices", "0"}, 2, "--devices: found 0, expected at least 1"},
        Mistake{{"--devices", "-1"}, 2, "--devices: found -1, expected at least 1"},
        Mistake{{"--devices", "two"}, 2, "--devices: found 'two', expected a whole number"},
        Mistake{{"--comm-timeout", "0"}, 2, "--comm-timeout: found 0, expected at least"},
        Mistake{{"--bucket-mb", "0"}, 2, "--bucket-mb: found 0, expected at least"},
        Mistake{{"--grad-dtype", "fp64"}, 2, "--grad-dtype: found 'fp64'"},
        Mistake{{"--dataset", "shapes", "--rendezvous", "tcp:/x"}, 2, "--rendezvous: found 'tcp:/x'"},
        Mistake{{"--dataset", "shapes", "--comm", "nccl", "--device", "cpu"},
                2,
                "--comm nccl: found --device cpu, expected a GPU"},
        Mistake{{"--config", "absent.toml"}, 2, "--config: absent.toml cannot be read"},
        Mistake{{"--dataset", "shapes", "--augment", "rotate"}, 2, "--augment: found 'rotate'"},
        Mistake{{"--dataset", "folder"}, 2, "--data is missing"},
        Mistake{{"--dataset", "shapes", "--data", "x"}, 2, "--data: the shapes set is generated"},
        Mistake{{"--device", "tpu"}, 2, "--device: found 'tpu'"}));

INSTANTIATE_TEST_SUITE_P(
    Contradictions, TrainMistakes,
    ::testing::Values(
        Mistake{{"--epochs", "0"}, 2, "--epochs 0: expected --max-steps"},
        Mistake{
            {"--precision", "fp64", "--grad-dtype", "fp32"}, 2, "--grad-dtype fp32: found --precision fp64"},
        Mistake{{"--batch-size", "8", "--micro-batch-size", "9"},
                2,
                "--micro-batch-size 9: expected at most --batch-size 8"},
        Mistake{{"--optimizer", "adam", "--momentum", "0.9"},
                2,
                "--momentum: not supported with --optimizer adam"},
        Mistake{
            {"--optimizer", "adamw", "--nesterov"}, 2, "--nesterov: not supported with --optimizer adamw"},
        Mistake{{"--nesterov", "--momentum", "0"}, 2, "--nesterov: found --momentum 0"},
        Mistake{
            {"--optimizer", "muon", "--zero", "1"},
            2,
            "--zero 1: not supported with --optimizer muon, which needs whole parameters; expected --zero 0"},
        Mistake{{"--optimizer", "muon", "--lr", "0"}, 2, "--lr 0: found --optimizer muon"},
        Mistake{{"--optimizer", "muon", "--sgd-lr", "0"}, 2, "--sgd-lr: found 0, expected more than 0"},
        Mistake{{"--sgd-lr", "0.1"},
                2,
                "--sgd-lr: not supported with --optimizer sgd, expected --optimizer muon"},
        Mistake{{"--ns-steps", "5"}, 2, "--ns-steps: not supported with --optimizer sgd, expected"},
        Mistake{{"--bias-lr", "0"}, 2, "--bias-lr: found 0, expected more than 0"},
        Mistake{{"--bias-lr", "0.1", "--lr", "0"}, 2, "--bias-lr 0.1: found --lr 0, expected more than 0"},
        Mistake{{"--activation", "silu"},
                2,
                "--activation silu: resnet20 has no choice, expected auto, or a speedrun network"},
        Mistake{{"--activation", "relu"}, 2, "--activation: found 'relu'"},
        Mistake{{"--schedule", "triangle", "--warmup", "0.1"},
                2,
                "--warmup: not supported with --schedule triangle, expected --schedule constant, linear"},
        Mistake{{"--stem", "cifar"}, 2, "--stem cifar: resnet20 has only one stem"},
        Mistake{{"--model", "lenet", "--sync-bn"}, 2, "--sync-bn: lenet has no batch norm"},
        Mistake{
            {"--model", "lenet", "--bn-buffers", "mean"}, 2, "--bn-buffers mean: lenet has no batch norm"},
        Mistake{{"--sync-bn", "--bn-buffers", "mean"}, 2, "--bn-buffers mean: with --sync-bn"},
        Mistake{{"--warmup", "5minutes"}, 2, "--warmup: found '5minutes', expected a fraction of all steps"},
        Mistake{{"--schedule", "one-cycle", "--warmup", "5steps"},
                2,
                "--warmup: not supported with --schedule one-cycle"},
        Mistake{{"--milestones", "0.5"}, 2, "--milestones: not supported with --schedule cosine, expected"},
        Mistake{{"--schedule", "step", "--milestones", "0,0.5"}, 2, "--milestones: found '0,0.5'"},
        Mistake{{"--power", "2"}, 2, "--power: not supported with --schedule cosine"},
        Mistake{{"--min-lr", "9"}, 2, "--min-lr 9: expected at most the peak rate, 0.2"},
        Mistake{{"--schedule", "constant", "--min-lr", "0.1"},
                2,
                "--min-lr: not supported with --schedule constant"},
        Mistake{{"--lr-base-batch", "9"}, 2, "--lr-base-batch: not supported with --lr-rule none"},
        Mistake{{"--adam-eps", "1"}, 2, "--adam-eps: not supported with --optimizer sgd"},
        Mistake{{"--optimizer", "adam", "--adam-betas", "0.9"},
                2,
                "--adam-betas: found '0.9', expected two numbers"},
        Mistake{{"--optimizer", "adam", "--adam-betas", "0.9,1"},
                2,
                "--adam-betas: found 1, expected less than 1"},
        Mistake{{"--resume", "x", "--init-from", "y"}, 2, "--init-from: found --resume x"},
        Mistake{{"--comm", "thread"}, 2, "--comm thread: needs ranks that are threads of one process"},
        Mistake{{"--devices", "2", "--comm", "mpi"},
                2,
                "--comm mpi: needs separate processes, found --devices 2"},
        Mistake{{"--devices", "2", "--device", "cuda:1"},
                2,
                "--device cuda:1: names one device, found --devices 2"},
        Mistake{{"--devices", "2", "--rendezvous", "env"}, 2, "--devices 2: threads of one process need no"},
        Mistake{{"--devices", "2", "--allow-shared-gpu"},
                2,
                "--allow-shared-gpu: NCCL does not support a GPU shared"},
        Mistake{{"--devices", "2", "--device", "cpu", "--precision", "fp16"}, 2, "--precision fp16"},
        Mistake{{"--overfit-batch", "--augment", "flip"}, 2, "--augment flip: found --overfit-batch"},
        Mistake{
            {"--overfit-batch", "--micro-batch-size", "2"}, 2, "--micro-batch-size: found --overfit-batch"}));

INSTANTIATE_TEST_SUITE_P(
    Resources, TrainMistakes,
    ::testing::Values(
        Mistake{{"--no-download"}, 3, "no cifar10 in data, "},
        Mistake{{"--dataset", "mnist", "--no-download"}, 3, "no mnist in data, "},
        Mistake{{"--data", "absent"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--data", "absent", "--fallback-shapes"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--dataset", "folder", "--data", "absent"}, 3, "--data: absent is no directory"},
        Mistake{{"--dataset", "shapes", "--resume", "absent"}, 5, "--resume absent: no checkpoint found"},
        Mistake{{"--dataset", "shapes", "--init-from", "absent.safetensors"}, 5, "absent.safetensors"},
        Mistake{{"--dataset", "shapes", "--device", "cuda:99"}, 7, "cuda:99"},
        Mistake{{"--dataset", "shapes", "--device", "cuda", "--devices", "99"}, 7, "--devices 99: "},
        Mistake{{"--devices", "2", "--device", "cpu", "--data", "absent"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--dataset", "shapes", "--out", "/proc/run"}, 8, "--out /proc/run: cannot be created"},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null"}, 8, "--out /dev/null: not a directory"},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null/x"},
                8,
                "--out /dev/null/x: /dev/null is not a directory"},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null/x", "--resume", "auto"}, 8, "--out /dev/null/x"},
        // A link to itself cannot be followed, not even by root, whom permissions do not stop.
        Mistake{{"--dataset", "folder", "--data", "loop"}, 3, "--data: loop cannot be read (Too many levels"},
        Mistake{{"--dataset", "mnist", "--data", "loop"}, 3, "--data: loop cannot be read (Too many levels"},
        Mistake{{"--dataset", "shapes", "--max-steps", "1", "--trace", "/proc/trace.json"}, 8, "/proc/"}));

TEST(OtherPrograms, RejectInvalidArguments) {
  const Mistake evaluate[] = {{{}, 2, "--checkpoint: missing"},
                              {{"--checkpint", "x"}, 2, "did you mean '--checkpoint'?"},
                              {{"--checkpoint", "absent"}, 5, "absent: no checkpoint"},
                              {{"--checkpoint", "x", "--split", "tests"}, 2, "did you mean 'test'?"}};
  for (const Mistake& mistake : evaluate) {
    Arguments arguments = {program("convoy-evaluate")};
    arguments.insert(arguments.end(), mistake.arguments.begin(), mistake.arguments.end());
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(mistake.message));
    expect_one_line(result, "convoy-evaluate");
  }
  const Mistake predict[] = {{{}, 2, "--checkpoint: missing"},
                             {{"--checkpoint", "x"}, 2, "no images: expected files"},
                             {{"--checkpoint", "x", "-", "-"}, 2, "standard input can be read only once"},
                             {{"--checkpoint", "x", "--tpo", "3", "a.png"}, 2, "did you mean '--top'?"},
                             {{"--checkpoint", "x", "--devices", "2", "a.png"},
                              2,
                              "--devices: unknown flag; this program uses one device per process"},
                             {{"--checkpoint", "absent", "a.png"}, 5, "absent: no checkpoint"}};
  for (const Mistake& mistake : predict) {
    Arguments arguments = {program("convoy-predict")};
    arguments.insert(arguments.end(), mistake.arguments.begin(), mistake.arguments.end());
    const ProcessResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, mistake.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(mistake.message));
    expect_one_line(result, "convoy-predict");
  }
}

/// A table of flags with short names.
struct ShortNames {
  std::int64_t number = 1;
  bool is_on = false, is_action = false;
  CommandLine line{"program", "Does something."};

  ShortNames() {
    line.add("number", &number, "A number", {.short_name = 'n', .value = "N", .maximum = 99});
    line.add("switch", &is_on, "A setting", {.short_name = 's'});
    line.add("act", &is_action, "An action", {.short_name = 'a', .in_config = false});
  }
  bool parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return line.parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

TEST(CpuLevel, OfTheEnvironmentIsCheckedByEveryProgram) {
  for (const char* name : {"convoy-train", "convoy-evaluate", "convoy-predict", "convoy-export"}) {
    const auto run = [&](const char* level) {
      return run_program({program(name), "--help"}, {.environment = {{"CONVOY_CPU_LEVEL", level}}});
    };
    EXPECT_EQ(run("").exit_code, 0);
    for (const char* level : {"avx2", "x86-64-v2"}) {
      const ProcessResult result = run(level);
      EXPECT_EQ(result.exit_code, 2) << result.out;
      EXPECT_THAT(result.err, HasSubstr(std::string("CONVOY_CPU_LEVEL")));
      EXPECT_THAT(result.err, HasSubstr(level));
      expect_one_line(result, name);
    }
  }
}

TEST(RepeatedFlags, TakeTheLastValue) {
  ShortNames names;
  ASSERT_TRUE(names.parse({"--number", "3", "--switch", "-n", "5", "--no-switch"}));
  EXPECT_EQ(names.number, 5);
  EXPECT_FALSE(names.is_on);
}

TEST(ShortFlags, SetTheSameFlagAsLongNames) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {"-n", "7", "-s", "-a"}, {"-n7", "-sa"}, {"--number", "7", "--switch", "--act"}}) {
    ShortNames flags;
    ASSERT_TRUE(flags.parse(arguments));
    EXPECT_EQ(flags.number, 7);
    EXPECT_TRUE(flags.is_on);
    EXPECT_TRUE(flags.is_action);
    EXPECT_TRUE(flags.line.given("number"));
    EXPECT_EQ(flags.line.config(), "number = 7\nswitch = true\n");
  }
}

TEST(ShortFlags, ErrorsNameTheLongName) {
  const auto message = [](const std::vector<const char*>& arguments) {
    return message_of<UsageError>([&] { ShortNames().parse(arguments); });
  };
  EXPECT_EQ(message({"-n", "100"}), "--number: found 100, expected at most 99");
  EXPECT_EQ(message({"-x"}), "-x: unknown flag (--help-all lists all flags)");
  EXPECT_EQ(message({"-number"}), "--number: found 'umber', expected a whole number");
  EXPECT_THAT(message({"-n"}), HasSubstr("--number"));
}

TEST(ShortFlags, AreShownInHelp) {
  ShortNames flags;
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(flags.parse({"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("  -n, --number N "));
  EXPECT_THAT(help, HasSubstr("  -s, --[no-]switch "));
  EXPECT_THAT(help, HasSubstr("  -a, --act "));
}

TEST(Help, ShowsDefaultsOfTraining) {
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"--model NAME", "[default: resnet20]"},
      {"--init-from FILE", "[default: none]"},
      {"--[no-]download", "[default: true]"},
      {"--augment LIST", "[default: auto: for photographs mostly crop=4,flip]"},
      {"--epochs N",
       "[default: 10; speedrun 8, speedrun-small 6, speedrun-96 37, lenet on mnist 6; 0 with --max-steps; 200 with --overfit-batch]"},
      {"--lr RATE",
       "[default: sgd 0.2 (lenet 0.05); adam, adamw 0.001; muon 0.02 (speedrun 0.24, speedrun-small, speedrun-96 0.12); lars 8; lamb 0.02]"},
      {"--devices N", "[default: 1]"},
      {"--comm-timeout SECONDS", "[default: 300]"},
      {"--grad-dtype NAME", "[default: the type they are computed in]"},
      {"--out DIR", "[default: runs/MODEL-DATASET]"}};
  const ProcessResult result = run_program({program("convoy-train"), "--help-all"});
  EXPECT_EQ(result.exit_code, 0);
  for (const auto& [flag, shown] : settings) {
    const std::size_t entry = result.out.find("  " + flag);
    ASSERT_NE(entry, std::string::npos) << flag;
    const std::size_t next = result.out.find("\n  -", entry);
    // In one line, although the help wraps.
    const std::string text =
        std::regex_replace(result.out.substr(entry, next - entry), std::regex("\\s+"), " ");
    EXPECT_THAT(text, HasSubstr(shown)) << flag;
  }
}

TEST(Help, OfTheTrainingFitsOnOneScreen) {
  const ProcessResult result = run_program({program("convoy-train"), "--help"});
  EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 64);
}

TEST(Help, VersionIsTheProjectVersion) {
  for (const char* name : {"convoy-train", "convoy-evaluate", "convoy-predict", "convoy-export"}) {
    const ProcessResult result = run_program({program(name), "--version"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, StartsWith(std::string(name) + " " + kVersion + "\n"));
  }
}

}  // namespace
}  // namespace convoy::testing
