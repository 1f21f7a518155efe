// Tests that run every command of docs/from-pytorch.md, from its text, on small generated data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/apps/rank_runs.h"
#include "tests/apps/tutorials/recipes.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kPage = testing::source_path("docs/from-pytorch.md");

// In place of convoy-train: the same program, whose flags are those of the page, and then these. The last value of a
// flag counts. Without --out it computes one batch and writes nothing.
constexpr const char* kShortTraining = R"(#!/bin/sh
case " $* " in
  *" folder "*) set -- "$@" --image-size 32 ;;
  *" mnist "*) ;;
  *) set -- "$@" --dataset shapes --image-size 8 ;;
esac
case " $* " in
  *" --out "*) set -- "$@" --max-steps 1 --save-every 1 ;;
  *) set -- "$@" --dry-run ;;
esac
exec "$CONVOY_TRAIN" "$@" --device cpu --threads 1 --workers 1
)";

/// Runs the commands of a section in a directory with small data sets.
class FromPyTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    write_digits(directory.path() / "all/mnist");
    write_color_directories(directory.path() / "data/photos");
    const fs::path wrapper = directory.write("bin/convoy-train", kShortTraining);
    ::chmod(wrapper.c_str(), 0755);
    environment = mpirun_environment(directory);
    environment["CONVOY_TRAIN"] = program("convoy-train");
    environment["PATH"] = wrapper.parent_path().string() + ":" +
                          fs::path(program("convoy-train")).parent_path().string() + ":" +
                          fs::path(CONVOY_MPIRUN).parent_path().string() + ":" + std::getenv("PATH");
    environment["CONVOY_DATA"] = directory.path() / "all";
  }
  ProcessResult run(const std::string& command) {
    Environment all = environment;
    all["MASTER_PORT"] = all["PET_MASTER_PORT"] = std::to_string(free_port());  // PET_: of torchrun
    return run_program({"/bin/bash", "-c", command}, {.environment = all, .directory = directory.path()});
  }
  bool has_torch() { return run("torchrun --help && python3 -c 'import torch'").exit_code == 0; }

  /// Returns the number of ranks that a command starts.
  static int ranks_in(const std::string& command) {
    static const std::regex kCount("(?:-n|--ranks|--nproc-per-node|--devices|slots=) ?([0-9]+)");
    std::smatch match;
    if (command.starts_with("for R in 0 1;")) return 2;
    if (command.find("--hostfile") != std::string::npos) return 2;
    return std::regex_search(command, match, kCount) ? std::stoi(match[1]) : 1;
  }

  /// Runs the commands of a section, those of its text last.
  void run_section(const std::string& heading) {
    std::vector<std::string> commands = recipes_of(kPage)[heading];
    const std::vector<std::string> in_text = inline_recipes_of(kPage)[heading];
    commands.insert(commands.end(), in_text.begin(), in_text.end());
    ASSERT_FALSE(commands.empty()) << heading;
    const bool torch = has_torch();
    for (const std::string& command : commands) {
      if (!torch && (command.starts_with("torchrun") || command.starts_with("python3 -m torch."))) continue;
      const ProcessResult result = run(command);
      EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.out << result.err;
      const int ranks = ranks_in(command);
      const bool trains = command.find("convoy-train") != std::string::npos && !command.ends_with(".toml");
      if (trains) {
        EXPECT_THAT(result.out, ::testing::AnyOf(HasSubstr("dry run: the loss of one batch is "),
                                                 HasSubstr("test accuracy  ")))
            << command;
      }
      if (trains && ranks > 1) {
        EXPECT_THAT(result.out, HasSubstr("ranks      " + std::to_string(ranks) + " ")) << command << "\n"
                                                                                        << result.out;
      }
    }
  }

  TempDirectory directory;
  Environment environment;
};

TEST_F(FromPyTorch, AllSectionsHaveATest) {
  std::vector<std::string> headings;
  Recipes all = inline_recipes_of(kPage);
  all.merge(recipes_of(kPage));
  for (const auto& [heading, commands] : all) headings.push_back(heading);
  EXPECT_THAT(headings, ::testing::UnorderedElementsAre(
                            "The CIFAR-10 tutorial, on one device", "DataParallel", "DistributedDataParallel",
                            "DeepSpeed", "Accelerate", "MindSpore: ResNet-50 by mpirun"));
}

TEST_F(FromPyTorch, Cifar10Tutorial) { run_section("The CIFAR-10 tutorial, on one device"); }
TEST_F(FromPyTorch, DataParallel) { run_section("DataParallel"); }
TEST_F(FromPyTorch, DistributedDataParallel) { run_section("DistributedDataParallel"); }
TEST_F(FromPyTorch, DeepSpeed) { run_section("DeepSpeed"); }
TEST_F(FromPyTorch, Accelerate) {
  if (run("printf 'mixed_precision: bf16\\n' > probe.yaml && convoy-train --accelerate-config probe.yaml")
          .err.find("this build reads no YAML") != std::string::npos)
    GTEST_SKIP() << "without yaml-cpp";
  run_section("Accelerate");
}
TEST_F(FromPyTorch, MindSpore) { run_section("MindSpore: ResNet-50 by mpirun"); }

}  // namespace
}  // namespace convoy::testing
