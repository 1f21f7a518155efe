// Command lines as users mistype them: one line, the documented exit code, the nearest suggestion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "apps/command_line.h"
#include "kernels/runtime/error.h"
#include "tests/apps/programs.h"
#include "tests/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// One line on stderr, from this program.
void expect_one_line(const ProcessResult& result, const std::string& name) {
  EXPECT_THAT(result.err, StartsWith(name + ": error: "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
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

TEST_P(TrainMistakes, EndWithOneLineAndTheDocumentedCode) {
  const TempFolder folder;
  Arguments arguments = {program("convoy-train")};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  // Away from data that lies about: nothing here may start a training or a download.
  const ProcessResult result = run_program(
      arguments, {.environment = {{"CONVOY_DATA", ""}, {"XDG_CACHE_HOME", folder.path().string()}},
                  .folder = folder.path(),
                  .input = ""});
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr(GetParam().message));
  expect_one_line(result, "convoy-train");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs"));
}

INSTANTIATE_TEST_SUITE_P(
    Usage, TrainMistakes,
    ::testing::Values(
        Mistake{{"--epohcs", "3"}, 2, "--epohcs: unknown flag; did you mean '--epochs'?"},
        Mistake{{"--batchsize=3"}, 2, "did you mean '--batch-size'?"},
        Mistake{{"--no-nesterof"}, 2, "did you mean '--no-nesterov'?"},
        Mistake{{"resnet20"}, 2, "'resnet20': no flag takes this argument"},
        Mistake{{"--model", "resnet21"}, 2, "did you mean 'resnet20'?"},
        Mistake{{"--dataset", "cifar"}, 2, "did you mean 'cifar10'?"},
        Mistake{{"--optimizer", "adma"}, 2, "did you mean 'adam'?"},
        Mistake{{"--schedule", "cosin"}, 2, "did you mean 'cosine'?"},
        Mistake{{"--precision", "fp8"}, 2, "expected fp64, fp32, tf32, bf16, fp16"},
        Mistake{{"--precision", "fp16", "--device", "cpu"}, 2, "--precision fp16"},
        Mistake{{"--epochs", "three"}, 2, "--epochs: found 'three', expected a whole number"},
        Mistake{{"--epochs", "1.5"}, 2, "expected a whole number"},
        Mistake{{"--epochs", "-1"}, 2, "--epochs: found -1, expected at least 0"},
        Mistake{{"--epochs"}, 2, "--epochs"},
        Mistake{{"--lr", "nan"}, 2, "--lr: found 'nan', expected a number"},
        Mistake{{"--lr", "-0.1"}, 2, "--lr: found -0.1, expected at least 0"},
        Mistake{{"--lr", "0.1", "--lr", "0.2"}, 2, "--lr"},
        Mistake{{"--label-smoothing", "1"}, 2, "--label-smoothing 1: expected less than 1"},
        Mistake{{"--momentum", "1"}, 2, "--momentum 1: expected less than 1"},
        Mistake{{"--warmup", "1"}, 2, "--warmup: found 1, expected at most"},
        Mistake{{"--seed", "99999999999999999999"}, 2, "--seed"},
        Mistake{{"--comm", "smoke"}, 2, "--comm: found 'smoke'"},
        Mistake{{"--devices", "0"}, 2, "--devices: found 0, expected at least 1"},
        Mistake{{"--devices", "-1"}, 2, "--devices: found -1, expected at least 1"},
        Mistake{{"--devices", "two"}, 2, "--devices: found 'two', expected a whole number"},
        Mistake{{"--comm-timeout", "0"}, 2, "--comm-timeout: found 0, expected at least"},
        Mistake{{"--bucket-mb", "0"}, 2, "--bucket-mb: found 0, expected at least"},
        Mistake{{"--grad-dtype", "fp64"}, 2, "--grad-dtype: found 'fp64'"},
        Mistake{{"--dataset", "shapes", "--rendezvous", "tcp:/x"}, 2, "--rendezvous tcp:/x: found"},
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
        Mistake{{"--precision", "fp64", "--grad-dtype", "fp32"}, 2, "--grad-dtype fp32: the gradients of"},
        Mistake{{"--batch-size", "8", "--micro-batch-size", "9"},
                2,
                "--micro-batch-size 9: more than --batch-size 8"},
        Mistake{{"--optimizer", "adam", "--momentum", "0.9"}, 2, "--momentum: adam has none"},
        Mistake{{"--optimizer", "adamw", "--nesterov"}, 2, "--nesterov: adamw has none"},
        Mistake{{"--nesterov", "--momentum", "0"}, 2, "--nesterov: --momentum is 0"},
        Mistake{{"--schedule", "triangle", "--warmup", "0.1"}, 2, "the triangle schedule rises by itself"},
        Mistake{{"--stem", "cifar"}, 2, "--stem cifar: resnet20 has one stem only"},
        Mistake{{"--model", "lenet", "--sync-bn"}, 2, "--sync-bn: lenet has no batch norm"},
        Mistake{
            {"--model", "lenet", "--bn-buffers", "mean"}, 2, "--bn-buffers mean: lenet has no batch norm"},
        Mistake{{"--sync-bn", "--bn-buffers", "mean"}, 2, "--bn-buffers mean: with --sync-bn"},
        Mistake{{"--resume", "x", "--init-from", "y"}, 2, "--init-from: --resume x takes the parameters"},
        Mistake{{"--comm", "thread"}, 2, "--comm thread: between the threads of one process"},
        Mistake{{"--devices", "2", "--comm", "mpi"}, 2, "--comm mpi: between processes, found --devices 2"},
        Mistake{
            {"--devices", "2", "--device", "cuda:1"}, 2, "--device cuda:1: one device, found --devices 2"},
        Mistake{{"--devices", "2", "--rendezvous", "env"}, 2, "--devices 2: threads of one process need no"},
        Mistake{{"--devices", "2", "--allow-shared-gpu"}, 2, "--allow-shared-gpu: NCCL lets no two ranks"},
        Mistake{{"--devices", "2", "--device", "cpu", "--precision", "fp16"}, 2, "--precision fp16"},
        Mistake{{"--overfit-batch", "--augment", "flip"}, 2, "--augment flip: --overfit-batch"},
        Mistake{{"--overfit-batch", "--micro-batch-size", "2"}, 2, "--micro-batch-size: --overfit-batch"}));

INSTANTIATE_TEST_SUITE_P(
    Resources, TrainMistakes,
    ::testing::Values(
        Mistake{{"--no-download"}, 3, "no cifar10 in data, "},
        Mistake{{"--dataset", "mnist", "--no-download"}, 3, "no mnist in data, "},
        Mistake{{"--data", "absent"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--data", "absent", "--fallback-shapes"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--dataset", "folder", "--data", "absent"}, 3, "--data: absent is no folder"},
        Mistake{{"--dataset", "shapes", "--resume", "absent"}, 5, "--resume absent: no checkpoint there"},
        Mistake{{"--dataset", "shapes", "--init-from", "absent.safetensors"}, 5, "absent.safetensors"},
        Mistake{{"--dataset", "shapes", "--device", "cuda:99"}, 7, "cuda:99"},
        Mistake{{"--dataset", "shapes", "--device", "cuda", "--devices", "99"}, 7, "--devices 99: "},
        Mistake{{"--devices", "2", "--device", "cpu", "--data", "absent"}, 3, "--data: no cifar10 in absent"},
        Mistake{{"--dataset", "shapes", "--out", "/proc/run"}, 8, "--out /proc/run: cannot be created"},
        Mistake{{"--dataset", "shapes", "--max-steps", "1", "--trace", "/proc/trace.json"}, 8, "/proc/"}));

TEST(OtherPrograms, RefuseWhatTheyDoNotKnow) {
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
                             {{"--checkpoint", "x"}, 2, "no images: name files"},
                             {{"--checkpoint", "x", "-", "-"}, 2, "standard input can be read once"},
                             {{"--checkpoint", "x", "--tpo", "3", "a.png"}, 2, "did you mean '--top'?"},
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

/// A table with short names, as a program has it that takes those of another.
struct ShortNames {
  std::int64_t number = 1;
  bool is_on = false, is_action = false;
  CommandLine line{"program", "Does something."};

  ShortNames() {
    line.add("number", &number, "A number", {.short_name = 'n', .value = "N", .most = 99});
    line.add("switch", &is_on, "A setting", {.short_name = 's'});
    line.add("act", &is_action, "An action", {.short_name = 'a', .in_config = false});
  }
  bool parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return line.parse(static_cast<int>(arguments.size()), arguments.data());
  }
};

TEST(ShortFlags, AreTheLongOnes) {
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

TEST(ShortFlags, AreToldOfByTheirLongNames) {
  const auto message = [](const std::vector<const char*>& arguments) {
    return message_of<UsageError>([&] { ShortNames().parse(arguments); });
  };
  EXPECT_EQ(message({"-n", "100"}), "--number: found 100, expected at most 99");
  EXPECT_EQ(message({"-x"}), "-x: unknown flag (--help lists all)");
  EXPECT_EQ(message({"-number"}), "--number: found 'umber', expected a whole number");
  EXPECT_THAT(message({"-n"}), HasSubstr("--number"));
  EXPECT_THAT(message({"-n", "3", "--number", "4"}), HasSubstr("--number"));
}

TEST(ShortFlags, StandInHelp) {
  ShortNames flags;
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(flags.parse({"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("  -n,--number N "));
  EXPECT_THAT(help, HasSubstr("  -s,--[no-]switch "));
  EXPECT_THAT(help, HasSubstr("  -a,--act "));
}

/// The text of each flag, without the line breaks of the layout.
std::map<std::string, std::string> help_entries(const std::string& help) {
  std::map<std::string, std::string> entries;
  std::istringstream lines(help);
  std::string flag;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(' ');
    if (start == std::string::npos) continue;
    if (start == 2 && line[2] == '-') {
      flag = line.substr(2, line.find(' ', 2) - 2);
      if (flag.starts_with("--[no-]")) flag.erase(2, 5);
      if (flag == "-h,--help") flag = "--help";
      entries[flag] = line.substr(2);
    } else {
      entries[flag].append(" ").append(line, start);
    }
  }
  return entries;
}

TEST(Help, NamesEveryFlagWithItsDefault) {
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"--model", "[default: resnet20]"},
      {"--stem", "[default: auto]"},
      {"--init-from", "[default: none]"},
      {"--dataset", "[default: cifar10]"},
      {"--data", "[default: $CONVOY_DATA,"},
      {"--download", "[default: true]"},
      {"--image-size", "[default: 0]"},
      {"--skip-corrupt", "[default: false]"},
      {"--workers", "[default: 2]"},
      {"--fallback-shapes", "[default: false]"},
      {"--augment", "[default: crop=4,flip"},
      {"--overfit-batch", "[default: false]"},
      {"--epochs", "[default: 10;"},
      {"--max-steps", "[default: 0]"},
      {"--batch-size", "[default: 128]"},
      {"--micro-batch-size", "[default: 0]"},
      {"--optimizer", "[default: sgd]"},
      {"--lr", "[default: sgd 0.2,"},
      {"--momentum", "[default: 0.9]"},
      {"--nesterov", "[default: true with"},
      {"--weight-decay", "[default: sgd 0.0005,"},
      {"--label-smoothing", "[default: 0.1;"},
      {"--clip-norm", "[default: 0]"},
      {"--schedule", "[default: cosine]"},
      {"--warmup", "[default: 0.2;"},
      {"--seed", "[default: 1]"},
      {"--device", "[default: auto]"},
      {"--threads", "[default: 0]"},
      {"--precision", "[default: fp32]"},
      {"--devices", "[default: one for each process]"},
      {"--rendezvous", "[default: auto]"},
      {"--comm", "[default: auto]"},
      {"--comm-timeout", "[default: 300]"},
      {"--debug-comm", "[default: false]"},
      {"--allow-shared-gpu", "[default: false]"},
      {"--bucket-mb", "[default: 10]"},
      {"--grad-dtype", "[default: as they are computed]"},
      {"--check-replicas", "[default: 0]"},
      {"--out", "[default: runs/MODEL-DATASET]"},
      {"--resume", "[default: none]"},
      {"--save-every", "[default: 0;"},
      {"--keep-last", "[default: 3]"},
      {"--keep-best", "[default: true]"},
      {"--eval-every", "[default: 1;"},
      {"--log-every", "[default: 20]"},
      {"--trace", "[default: none]"}};
  const ProcessResult result = run_program({program("convoy-train"), "--help"});
  EXPECT_EQ(result.exit_code, 0);
  const std::map<std::string, std::string> entries = help_entries(result.out);
  for (const auto& [flag, shown] : settings) {
    const auto entry = entries.find(flag);
    ASSERT_NE(entry, entries.end()) << flag;
    EXPECT_THAT(entry->second, HasSubstr(shown)) << flag;
  }
  for (const char* action : {"--summary", "--config", "--print-config", "--dry-run", "--version", "--help"})
    EXPECT_EQ(entries.count(action), 1u) << action;
  // What later work brings is absent until then.
  for (const char* later : {"--tta"}) EXPECT_EQ(entries.count(later), 0u) << later;
}

TEST(Help, VersionIsOfTheProject) {
  for (const char* name : {"convoy-train", "convoy-evaluate", "convoy-predict"}) {
    const ProcessResult result = run_program({program(name), "--version"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, std::string(name) + " " CONVOY_VERSION "\n");
  }
}

}  // namespace
}  // namespace convoy::testing
