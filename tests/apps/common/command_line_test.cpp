// Invalid command lines: a one-line error, the documented exit code, and the nearest valid name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "convoy/apps/flags/command_line.h"
#include "convoy/kernels/base/error.h"
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
  const char* message;
  int exit_code = 2;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  for (const std::string& argument : mistake.arguments) *out << argument << ' ';
}

class TrainMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(TrainMistakes, PrintOneLinePerRankAndReturnTheDocumentedCode) {
  const TempDirectory directory;
  std::filesystem::create_symlink("loop", directory.path() / "loop");
  const Arguments arguments = with({program("convoy-train")}, GetParam().arguments);
  // In an empty directory without CONVOY_DATA, so that no training and no download starts.
  const ProcessResult result = run_program(
      arguments, {.environment = {{"CONVOY_DATA", ""}, {"XDG_CACHE_HOME", directory.path().string()}},
                  .directory = directory.path(),
                  .input = ""});
  EXPECT_THAT(result, FailsWith(GetParam().exit_code, GetParam().message));
  const bool has_two_ranks = std::ranges::search(arguments, Arguments{"--devices", "2"}).size() == 2;
  expect_one_line(result, "convoy-train", has_two_ranks ? 2 : 1);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "runs"));
}

INSTANTIATE_TEST_SUITE_P(
    Usage, TrainMistakes,
    ::testing::Values(
        Mistake{{"--epohcs", "3"}, "--epohcs: unknown flag; did you mean '--epochs'?"},
        Mistake{{"--batchsize=3"}, "did you mean '--batch-size'?"},
        Mistake{{"--no-nesterof"}, "did you mean '--no-nesterov'?"},
        Mistake{{"--learning-rate", "0.1"}, "--learning-rate: unknown flag; did you mean '--lr'?"},
        Mistake{{"--learning_rate=0.1"}, "did you mean '--lr'?"},
        Mistake{{"--gpus", "2"}, "did you mean '--devices'?"},
        Mistake{{"--fp16"}, "did you mean '--precision'?"}, Mistake{{"--amp"}, "did you mean '--precision'?"},
        Mistake{{"--backend", "nccl"}, "did you mean '--comm'?"},
        Mistake{{"--init-method", "env://"}, "did you mean '--rendezvous'?"},
        Mistake{{"--gradient-accumulation-steps", "4"}, "did you mean '--micro-batch-size'?"},
        Mistake{{"--nproc_per_node", "4"}, "unknown flag; ranks come from the launcher: mpirun -n N"},
        Mistake{{"--local_rank=0"}, "unknown flag; ranks come from the launcher"},
        Mistake{{"--pretrained"}, "did you mean '--init-from'?"},
        Mistake{{"--early-stopping", "3"}, "did you mean '--patience'?"},
        Mistake{{"--val-split", "0.1"}, "did you mean '--validation'?"},
        Mistake{{"--betas", "0.9", "0.99"}, "did you mean '--adam-betas'?"},
        Mistake{{"--mixup_alpha", "0.2"}, "did you mean '--mixup'?"},
        Mistake{{"--model-ema"}, "did you mean '--ema'?"},
        Mistake{{"--gradient-checkpointing"}, "did you mean '--activation-checkpointing'?"},
        Mistake{{"--hostfile", "hosts"},
                "unknown flag; hosts come from the launcher: mpirun --hostfile FILE"},
        Mistake{{"--wandb"}, "unknown flag; docs/report.md passes the log of a run on to TensorBoard"},
        Mistake{{"--deepspeed_config", "x.json"}, "unknown flag; docs/from-pytorch.md has the flags for"},
        Mistake{{"--xyz"}, "--xyz: unknown flag (--help-all lists all flags)"},
        Mistake{{"resnet20"}, "'resnet20': unexpected argument"},
        Mistake{{"--model", "resnet21"}, "did you mean 'resnet20'?"},
        Mistake{{"--dataset", "cifar"}, "did you mean 'cifar10'?"},
        Mistake{{"--optimizer", "adma"}, "did you mean 'adam'?"},
        Mistake{{"--schedule", "cosin"}, "did you mean 'cosine'?"},
        Mistake{{"--dataset", "shapes", "--image-cache", "cache"},
                "--image-cache: found --dataset shapes, which"},
        Mistake{{"--cpu-level", "avx2"}, "expected x86-64, x86-64-v2, x86-64-v3, x86-64-v4"},
        Mistake{{"--cpu-level", "x86-64-v2"},
                "--cpu-level (or CONVOY_CPU_LEVEL) x86-64-v2: this build has CPU kernels for "},
        Mistake{{"--precision", "fp8"}, "expected fp64, fp32, tf32, bf16, fp16"},
        Mistake{{"--precision", "fp16", "--device", "cpu"}, "--precision fp16"},
        Mistake{{"--epochs", "three"}, "--epochs: found 'three', expected a whole number"},
        Mistake{{"--epochs", "1.5"}, "expected a whole number"},
        Mistake{{"--epochs", "-1"}, "--epochs: found -1, expected at least 0"},
        Mistake{{"--epochs"}, "--epochs: its value is missing"},
        Mistake{{"--lr", "--out", "x"}, "--lr: its value is missing, found the flag --out"},
        Mistake{{"--data", "--no-download"}, "--data: its value is missing, found the flag --no-download"},
        Mistake{{"--lr", "nan"}, "--lr: found 'nan', expected a number"},
        Mistake{{"--lr", "-0.1"}, "--lr: found -0.1, expected at least 0"},
        Mistake{{"--lr", "0.1", "--lr", "x"}, "--lr: found 'x', expected a number"},
        Mistake{{"--label-smoothing", "1"}, "--label-smoothing: found 1, expected less than 1"},
        Mistake{{"--momentum", "1"}, "--momentum: found 1, expected less than 1"},
        Mistake{{"--warmup", "1"}, "--warmup: found 1, expected at most"},
        Mistake{{"--seed", "99999999999999999999"}, "--seed"},
        Mistake{{"--comm", "smoke"}, "--comm: found 'smoke'"},
        Mistake{{"--devices", "0"}, "--devices: found 0, expected at least 1"},
        Mistake{{"--devices", "-1"}, "--devices: found -1, expected at least 1"},
        Mistake{{"--devices", "two"}, "--devices: found 'two', expected a whole number"},
        Mistake{{"--comm-timeout", "0"}, "--comm-timeout: found 0, expected at least"},
        Mistake{{"--bucket-mb", "0"}, "--bucket-mb: found 0, expected at least"},
        Mistake{{"--allreduce", "star"},
                "--allreduce: found 'star', expected direct, ring, halving-doubling, tree, auto"},
        Mistake{{"--link-latency", "-1"}, "--link-latency: found -1, expected at least 0"},
        Mistake{{"--link-bandwidth", "0"}, "--link-bandwidth: found 0, expected at least 0.001"},
        Mistake{{"--grad-dtype", "fp64"}, "--grad-dtype: found 'fp64'"},
        Mistake{{"--dataset", "shapes", "--rendezvous", "tcp:/x"}, "--rendezvous: found 'tcp:/x'"},
        Mistake{{"--dataset", "shapes", "--comm", "nccl", "--device", "cpu"},
                "--comm nccl: found --device cpu, expected a GPU"},
        Mistake{{"--config", "absent.toml"}, "--config: absent.toml cannot be read"},
        Mistake{{"--dataset", "shapes", "--augment", "rotate"}, "--augment: found 'rotate'"},
        Mistake{{"--dataset", "folder"}, "--data is missing"},
        Mistake{{"--dataset", "shapes", "--data", "x"}, "--data: the shapes set is generated"},
        Mistake{{"--device", "tpu"}, "--device: found 'tpu'"}));

INSTANTIATE_TEST_SUITE_P(
    Contradictions, TrainMistakes,
    ::testing::Values(
        Mistake{{"--epochs", "0"}, "--epochs 0: expected --max-steps"},
        Mistake{{"--precision", "fp64", "--grad-dtype", "fp32"}, "--grad-dtype fp32: found --precision fp64"},
        Mistake{{"--batch-size", "8", "--micro-batch-size", "9"},
                "--micro-batch-size 9: expected at most --batch-size 8"},
        Mistake{{"--optimizer", "adam", "--momentum", "0.9"},
                "--momentum: not supported with --optimizer adam"},
        Mistake{{"--optimizer", "adamw", "--nesterov"}, "--nesterov: not supported with --optimizer adamw"},
        Mistake{{"--nesterov", "--momentum", "0"}, "--nesterov: found --momentum 0"},
        Mistake{
            {"--optimizer", "muon", "--zero", "1"},
            "--zero 1: not supported with --optimizer muon, which needs whole parameters; expected --zero 0"},
        Mistake{{"--optimizer", "muon", "--lr", "0"}, "--lr 0: found --optimizer muon"},
        Mistake{{"--optimizer", "muon", "--sgd-lr", "0"}, "--sgd-lr: found 0, expected more than 0"},
        Mistake{{"--sgd-lr", "0.1"},
                "--sgd-lr: not supported with --optimizer sgd, expected --optimizer muon"},
        Mistake{{"--ns-steps", "5"}, "--ns-steps: not supported with --optimizer sgd, expected"},
        Mistake{{"--bias-lr", "0"}, "--bias-lr: found 0, expected more than 0"},
        Mistake{{"--bias-lr", "0.1", "--lr", "0"}, "--bias-lr 0.1: found --lr 0, expected more than 0"},
        Mistake{{"--activation", "silu"},
                "--activation silu: resnet20 has no choice, expected auto, or a speedrun network"},
        Mistake{{"--activation", "relu"}, "--activation: found 'relu'"},
        Mistake{{"--stem", "cifar"}, "--stem cifar: resnet20 has only one stem"},
        Mistake{{"--model", "lenet", "--sync-bn"}, "--sync-bn: lenet has no batch norm"},
        Mistake{{"--model", "lenet", "--bn-buffers", "mean"}, "--bn-buffers mean: lenet has no batch norm"},
        Mistake{{"--sync-bn", "--bn-buffers", "mean"}, "--bn-buffers mean: with --sync-bn"},
        Mistake{{"--warmup", "5minutes"}, "--warmup: found '5minutes', expected a fraction of all steps"},
        Mistake{{"--schedule", "one-cycle", "--warmup", "5steps"},
                "--warmup: not supported with --schedule one-cycle, expected --schedule constant, linear"},
        Mistake{{"--milestones", "0.5"}, "--milestones: not supported with --schedule cosine, expected"},
        Mistake{{"--schedule", "step", "--milestones", "0,0.5"}, "--milestones: found '0,0.5'"},
        Mistake{{"--power", "2"}, "--power: not supported with --schedule cosine"},
        Mistake{{"--min-lr", "9"}, "--min-lr 9: expected at most the peak rate, 0.2"},
        Mistake{{"--schedule", "constant", "--min-lr", "0.1"},
                "--min-lr: not supported with --schedule constant"},
        Mistake{{"--adam-eps", "1"}, "--adam-eps: not supported with --optimizer sgd"},
        Mistake{{"--optimizer", "adam", "--adam-betas", "0.9"},
                "--adam-betas: found '0.9', expected two numbers"},
        Mistake{{"--optimizer", "adam", "--adam-betas", "0.9,1"},
                "--adam-betas: found 1, expected less than 1"},
        Mistake{{"--resume", "x", "--init-from", "y"}, "--init-from: found --resume x"},
        Mistake{{"--comm", "thread"}, "--comm thread: needs ranks that are threads of one process"},
        Mistake{{"--devices", "2", "--comm", "mpi"},
                "--comm mpi: needs separate processes, found --devices 2"},
        Mistake{{"--devices", "2", "--device", "cuda:1"},
                "--device cuda:1: names one device, found --devices 2"},
        Mistake{{"--devices", "2", "--rendezvous", "env"}, "--devices 2: threads of one process need no"},
        Mistake{{"--devices", "2", "--allow-shared-gpu"},
                "--allow-shared-gpu: NCCL does not support a GPU shared"},
        Mistake{{"--devices", "2", "--device", "cpu", "--precision", "fp16"}, "--precision fp16"},
        Mistake{{"--overfit-batch", "--augment", "flip"}, "--augment flip: found --overfit-batch"},
        Mistake{{"--overfit-batch", "--micro-batch-size", "2"},
                "--micro-batch-size: found --overfit-batch"}));

INSTANTIATE_TEST_SUITE_P(
    Resources, TrainMistakes,
    ::testing::Values(
        Mistake{{"--no-download"}, "no cifar10 in data, ", 3},
        Mistake{{"--dataset", "mnist", "--no-download"}, "no mnist in data, ", 3},
        // These are found before data, of which there are none.
        Mistake{{"--augment", "rotate"}, "--augment: found 'rotate'"},
        Mistake{{"--out", ""}, "--out: found '', expected DIR"},
        Mistake{{"--freeze", "conv9"}, "--freeze conv9: no parameter has a name that begins with 'conv9'"},
        Mistake{{"--lr-for", "tail=10x"}, "--lr-for tail=10x: no parameter has a name"},
        Mistake{{"--init-from", "absent.safetensors"}, "absent.safetensors: cannot be opened", 5},
        Mistake{{"--model", "lenet", "--activation-checkpointing"},
                "--activation-checkpointing: lenet has no"},
        Mistake{
            {"--epochs", "99999999999999999999"},
            "--epochs: found 99999999999999999999, which is out of range, expected at least 0 and at most 1000000"},
        Mistake{{"--seed", "99999999999999999999"}, "at least 0 and at most 9223372036854775807"},
        Mistake{{"--lr", "1e400"},
                "--lr: found 1e400, which is out of range, expected at least 0 and at most 1.79"},
        Mistake{{"--data", "absent"}, "--data: no cifar10 in absent", 3},
        Mistake{{"--data", "absent", "--fallback-shapes"}, "--data: no cifar10 in absent", 3},
        Mistake{{"--dataset", "folder", "--data", "absent"}, "--data: absent is no directory", 3},
        Mistake{{"--dataset", "shapes", "--resume", "absent"}, "--resume absent: no checkpoint found", 5},
        Mistake{{"--dataset", "shapes", "--init-from", "absent.safetensors"}, "absent.safetensors", 5},
        Mistake{{"--dataset", "shapes", "--device", "cuda:99"}, "cuda:99", 7},
        Mistake{{"--dataset", "shapes", "--device", "cuda", "--devices", "99"}, "--devices 99: ", 7},
        Mistake{{"--devices", "2", "--device", "cpu", "--data", "absent"}, "--data: no cifar10 in absent", 3},
        Mistake{{"--dataset", "shapes", "--out", "/proc/run"}, "--out /proc/run: cannot be created", 8},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null"}, "--out /dev/null: not a directory", 8},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null/x"},
                "--out /dev/null/x: /dev/null is not a directory",
                8},
        Mistake{{"--dataset", "shapes", "--out", "/dev/null/x", "--resume", "auto"}, "--out /dev/null/x", 8},
        // A link to itself cannot be followed, not even by root, whom permissions do not stop.
        Mistake{{"--dataset", "folder", "--data", "loop"}, "--data: loop cannot be read: Too many levels", 3},
        Mistake{{"--dataset", "mnist", "--data", "loop"}, "--data: loop cannot be read: Too many levels", 3},
        Mistake{{"--dataset", "shapes", "--max-steps", "1", "--trace", "/proc/trace.json"}, "/proc/", 8}));

TEST(OtherPrograms, RejectInvalidArguments) {
  const std::map<std::string, std::vector<Mistake>> mistakes = {
      {"convoy-evaluate",
       {{{}, "--checkpoint: missing"},
        {{"runs/a"}, "'runs/a': unexpected argument, expected a flag; did you mean --checkpoint runs/a?"},
        {{"--checkpoint", "x", "--json", "absent/x.json"},
         "--json absent/x.json: there is no directory absent",
         8},
        {{"--checkpoint", "x", "--logits", ""}, "--logits: found '', expected FILE.npy"},
        {{"--checkpint", "x"}, "did you mean '--checkpoint'?"},
        {{"--checkpoint", "absent"}, "absent: no checkpoint", 5},
        {{"--checkpoint", "x", "--split", "tests"}, "did you mean 'test'?"}}},
      {"convoy-predict",
       {{{}, "--checkpoint: missing"},
        {{"--checkpoint", "x"}, "no images: expected files"},
        {{"--checkpoint", "x", "-", "-"}, "standard input can be read only once"},
        {{"--checkpoint", "x", "--tpo", "3", "a.png"}, "did you mean '--top'?"},
        {{"--checkpoint", "x", "--devices", "2", "a.png"},
         "--devices: unknown flag; this program uses one device per process"},
        {{"--checkpoint", "absent", "a.png"}, "absent: no checkpoint", 5}}}};
  for (const auto& [name, of_program] : mistakes)
    for (const Mistake& mistake : of_program) {
      const ProcessResult result = run_program(with({program(name)}, mistake.arguments));
      EXPECT_THAT(result, FailsWith(mistake.exit_code, mistake.message));
      expect_one_line(result, name);
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
      EXPECT_THAT(result, FailsWith(2, "CONVOY_CPU_LEVEL"));
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

TEST(Help, ShowsDefaultsOfTraining) {
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"--model NAME", "[default: resnet20]"},
      {"--init-from FILE", "[default: none]"},
      {"--[no-]download", "[default: true]"},
      {"--augment LIST", "[default: auto: for photographs mostly crop=4,flip]"},
      {"--epochs N", "[default: 10]"},
      {"--lr RATE", "[default: 0.2; follows --batch-size]"},
      {"--adam-eps EPS", "[default: 1e-08]"},
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

}  // namespace
}  // namespace convoy::testing
