// Tests that run every command of docs/getting-started.md, from the text and in its order, on small generated data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/tutorials/documented_project.h"
#include "tests/apps/tutorials/pages.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

TEST(GettingStarted, RunsAllCommands) {
  // The sections with their commands, and what the last one prints.
  const std::vector<std::pair<std::string, std::string>> sections = {{"Install", "test accuracy  "},
                                                                     {"Train", "test accuracy  "},
                                                                     {"See what it learned", "report.html"},
                                                                     {"Train on your own images", "head"},
                                                                     {"Classify images", "%"},
                                                                     {"Train on two ranks", "ranks      2 "},
                                                                     {"See where the time goes", "fwd ms"},
                                                                     {"Measure the communication", "busbw"}};
  const DocumentedProject project;
  const std::filesystem::path page = testing::source_path("docs/getting-started.md");
  Recipes recipes = recipes_of(page), in_text = inline_recipes_of(page);
  EXPECT_EQ(recipes.size(), sections.size()) << "each section with commands has a row here";
  for (const auto& [heading, output] : sections) {
    ASSERT_FALSE(recipes[heading].empty()) << heading;
    std::string last;
    for (const std::string& command : recipes[heading]) {
      if (command.starts_with("export PATH=") || exception_for("docs/getting-started.md", command)) continue;
      last = project.expect_success(command).out;
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_THAT(last, HasSubstr(output)) << heading;
    for (const std::string& command : in_text[heading]) project.expect_success(command);
    in_text.erase(heading);
  }
  EXPECT_TRUE(in_text.empty()) << in_text.begin()->second.front();
}

}  // namespace
}  // namespace convoy::testing
