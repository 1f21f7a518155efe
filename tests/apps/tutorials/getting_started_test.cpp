// Tests that run every command of docs/getting-started.md and of the next steps in README.md, from the text and in its
// order, on small generated data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "tests/apps/rank_runs.h"
#include "tests/apps/tutorials/recipes.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kPage = testing::source_path("docs/getting-started.md");

// In place of convoy-train: the same program with the flags of the page, then those of a short training. The last value
// of a flag counts. Images of CIFAR-10 are generated, and a profile needs more steps than it names.
constexpr const char* kShortTraining = R"(#!/bin/sh
case " $* " in
  *" folder "*) set -- "$@" --batch-size 8 ;;
  *" mnist "*) ;;
  *" speedrun"*) set -- "$@" --dataset shapes --image-size 32 --batch-size 16 ;;
  *) set -- "$@" --dataset shapes --image-size 16 --batch-size 16 ;;
esac
case " $* " in
  *" --profile "*) ;;
  *) set -- "$@" --max-steps 1 ;;
esac
exec "$CONVOY_TRAIN" "$@" --device cpu --threads 1 --workers 1
)";

// In place of scripts/train.sh, which also installs packages and builds: its training.
constexpr const char* kTrainScript = R"(#!/bin/sh
exec convoy-train --model speedrun-small --out runs/speedrun-small-cifar10 "$@"
)";

fs::path first_file(const fs::path& parent) { return fs::directory_iterator(parent)->path(); }

/// Runs the commands in a directory that looks like the root of the project after a build.
class GettingStarted : public ::testing::Test {
 protected:
  void SetUp() override {
    write_digits(directory.path() / "all/mnist");
    write_color_directories(directory.path() / "data/flowers", 32, 4);
    for (const char* part : {"train", "test"}) {
      const fs::path classes = directory.path() / "data/flowers" / part;
      fs::rename(classes / "red", classes / "rose");  // a class of the page
    }
    environment = mpirun_environment(directory);
    write_program("bin/convoy-train", kShortTraining);
    write_program("scripts/train.sh", kTrainScript);
    environment["CONVOY_TRAIN"] = program("convoy-train");
    environment["PATH"] = (directory.path() / "bin").string() + ":" +
                          fs::path(program("convoy-train")).parent_path().string() + ":" +
                          fs::path(CONVOY_MPIRUN).parent_path().string() + ":" + std::getenv("PATH");
    environment["CONVOY_DATA"] = directory.path() / "all";
  }
  void write_program(const std::string& name, const char* text) {
    ::chmod(directory.write(name, text).c_str(), 0755);
  }
  ProcessResult run(const std::string& command) {
    return run_program({"/bin/bash", "-c", command},
                       {.environment = environment, .directory = directory.path()});
  }

  TempDirectory directory;
  Environment environment;
};

TEST_F(GettingStarted, RunsAllCommands) {
  // The sections with their commands, and what the last one prints.
  const std::vector<std::pair<std::string, std::string>> sections = {{"Train", "test accuracy  "},
                                                                     {"See what it learned", "report.html"},
                                                                     {"Train on your own images", "head"},
                                                                     {"Classify images", "%"},
                                                                     {"Train on two ranks", "ranks      2 "},
                                                                     {"See where the time goes", "fwd ms"},
                                                                     {"Measure the communication", "busbw"}};
  Recipes recipes = recipes_of(kPage);
  EXPECT_EQ(recipes.size(), sections.size()) << "each section with commands has a row here";
  for (const auto& [heading, output] : sections) {
    ASSERT_FALSE(recipes[heading].empty()) << heading;
    std::string last;
    for (const std::string& command : recipes[heading]) {
      if (command.starts_with("export PATH=") || command.starts_with("cmake --build "))
        continue;  // see SetUp()
      const ProcessResult result = run(command);
      ASSERT_EQ(result.exit_code, 0) << command << "\n" << result.out << result.err;
      last = result.out;
    }
    EXPECT_THAT(last, HasSubstr(output)) << heading;
  }
}

/// Programs of which a test runs less: the arguments that follow those of README.md.
constexpr std::pair<const char*, const char*> kShortened[] = {{"convoy-bench-allreduce", "-e 64K"},
                                                              {"callbacks", "1"},
                                                              {"minimal_cifar10", "2"},
                                                              {"minimal_cifar10_ranks", "2"}};

TEST_F(GettingStarted, RunsTheNextStepsOfTheReadme) {
  write_program("scripts/train.sh",
                "#!/bin/sh\nexec convoy-train --resume auto --model speedrun-small \"$@\"\n");
  for (const auto& [name, arguments] : kShortened)
    write_program(std::string("bin/") + name,
                  fmt::format("#!/bin/sh\nexec {} \"$@\" {}\n", program(name), arguments).c_str());
  fs::rename(directory.path() / "data/flowers", directory.path() / "my-images");
  write_digits(directory.path() / "data/mnist");
  const fs::path image = first_file(directory.path() / "my-images/test/rose");
  fs::create_directory(directory.path() / "more-photos");
  fs::copy(image, directory.path() / "photo.jpg");
  fs::copy(image, directory.path() / "more-photos");

  std::vector<std::string> commands = recipes_of(testing::source_path("README.md"))["Next steps"];
  EXPECT_GE(commands.size(), 20u);
  for (const std::string& command : commands) {
    if (command.starts_with("export PATH=") || command.starts_with("cmake --build "))
      continue;  // see SetUp()
    // Each training begins in a directory of its own, as runs of another day do. Later commands use this one.
    if (fs::exists(directory.path() / "runs"))
      for (const fs::directory_entry& run : fs::directory_iterator(directory.path() / "runs"))
        if (run.path().filename() != "big") fs::remove_all(run.path());
    const ProcessResult result = run(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.out << result.err;
  }
}

}  // namespace
}  // namespace convoy::testing
