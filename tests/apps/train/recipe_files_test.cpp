// Tests of the configuration files in apps/recipes: each one trains. Those with a documented result have the default
// values that the result is for, and so have those that are the default of their model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/apps/flags/config_file.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kRecipes = testing::source_path("apps/recipes");

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRecipes))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> values_of(const std::string& config) {
  std::map<std::string, std::string> values;
  for (const ConfigEntry& entry : parse_config(config, "config")) values[entry.key] = entry.value;
  return values;
}

class RecipeFile : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path file() const { return kRecipes / (GetParam() + ".toml"); }
};

TEST_P(RecipeFile, TrainsForAStep) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 32, 4);
  const std::map<std::string, std::string> recipe = values_of(read_text(file()));
  Arguments flags = {
      "--config", file(),      "--out", workshop.path("run"), "--device", "cpu",          "--threads",
      "1",        "--workers", "1",     "--max-steps",        "1",        "--batch-size", "16"};
  if (recipe.at("dataset") == "mnist")
    flags.insert(flags.end(), {"--data", workshop.path("digits")});
  else
    flags.insert(flags.end(),
                 {"--dataset", "folder", "--data", workshop.path("colors"), "--image-size", "32"});
  const ProcessResult run = workshop.run("convoy-train", flags);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(workshop.events("run", "step").size(), 1U);
  const std::map<std::string, std::string> used = values_of(read_text(workshop.path("run") / "config.toml"));
  for (const auto& [flag, value] : recipe) {
    if (flag != "dataset" && flag != "batch-size" && flag != "image-size") {
      EXPECT_EQ(used.at(flag), value) << flag;
    }
  }
}

TEST_P(RecipeFile, SaysItsResult) {
  const std::string text = read_text(file());
  EXPECT_THAT(text, HasSubstr("\n# Result:  "));
  EXPECT_THAT(text, HasSubstr("\n# Time:    "));
  EXPECT_THAT(read_text(kRecipes / "README.md"), HasSubstr("| `" + GetParam() + ".toml` | "));
}

TEST_P(RecipeFile, WithAResultHasTheDefaultValues) {
  const std::string text = read_text(file());
  if (text.find("\n# Machine: ") == std::string::npos &&
      text.find("The default of its model.") == std::string::npos)
    return;  // nothing is promised
  const std::map<std::string, std::string> recipe = values_of(text);
  const ProcessResult by_file =
      run_program({program("convoy-train"), "--config", file(), "--device", "cpu", "--print-config"});
  const ProcessResult by_default =
      run_program({program("convoy-train"), "--model", recipe.at("model"), "--dataset", recipe.at("dataset"),
                   "--device", "cpu", "--print-config"});
  ASSERT_EQ(by_file.exit_code, 0) << by_file.err;
  EXPECT_EQ(values_of(by_file.out), values_of(by_default.out));
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeFile, ::testing::ValuesIn(recipe_names()), [](const auto& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace convoy::testing
