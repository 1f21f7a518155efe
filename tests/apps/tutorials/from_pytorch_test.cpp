// Tests that run every command of docs/from-pytorch.md, from its text, on small generated data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/apps/tutorials/documented_project.h"
#include "tests/apps/tutorials/pages.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

constexpr const char* kName = "docs/from-pytorch.md";

/// Runs the commands of a section in a directory with small data sets.
class FromPyTorch : public ::testing::Test {
 protected:
  /// Runs the commands of a section, those of its text last.
  void run_section(const std::string& heading) {
    int count = 0;
    for (const PageCommand& command : runnable_commands_of(kName)) {
      if (command.heading != heading) continue;
      project.expect_success(command.text);
      ++count;
    }
    ASSERT_GT(count, 0) << heading;
  }

  DocumentedProject project;
};

TEST_F(FromPyTorch, AllSectionsHaveATest) {
  std::set<std::string> headings;
  for (const PageCommand& command : runnable_commands_of(kName)) headings.insert(command.heading);
  EXPECT_THAT(headings, ::testing::UnorderedElementsAre(
                            "The CIFAR-10 tutorial, on one device", "DataParallel", "DistributedDataParallel",
                            "DeepSpeed", "Accelerate", "MindSpore: ResNet-50 by mpirun"));
}

TEST_F(FromPyTorch, Cifar10Tutorial) { run_section("The CIFAR-10 tutorial, on one device"); }
TEST_F(FromPyTorch, DataParallel) { run_section("DataParallel"); }
TEST_F(FromPyTorch, DistributedDataParallel) { run_section("DistributedDataParallel"); }
TEST_F(FromPyTorch, DeepSpeed) { run_section("DeepSpeed"); }
TEST_F(FromPyTorch, Accelerate) { run_section("Accelerate"); }
TEST_F(FromPyTorch, MindSpore) { run_section("MindSpore: ResNet-50 by mpirun"); }

TEST(TorchLaunchers, StartTheRanksOfThePage) {
  const DocumentedProject project;
  std::vector<std::string> commands;
  for (const PageCommand& command : commands_of(testing::source_path(kName)))
    if (command.text.starts_with("torchrun ") || command.text.starts_with("python3 -m torch."))
      commands.push_back(command.text);
  ASSERT_EQ(commands.size(), 4u);
  if (project.run("torchrun --help && python3 -c 'import torch'").exit_code != 0)
    GTEST_SKIP() << "needs PyTorch: torchrun on the PATH, and a python3 that imports torch";
  for (const std::string& command : commands) project.expect_success(command);
}

}  // namespace
}  // namespace convoy::testing
