// Tests that the documentation names flags, presets and targets that exist, also in commands that no test runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/apps/programs.h"
#include "tests/apps/tutorials/pages.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

/// Returns the long flags in a text: with a prefix "[no-]", both.
std::set<std::string> flags_in(const std::string& text) {
  static const std::regex kFlag("--(\\[no-\\])?([a-zA-Z][\\w-]*)");
  std::set<std::string> flags;
  for (std::sregex_iterator flag(text.begin(), text.end(), kFlag), end; flag != end; ++flag) {
    flags.insert("--" + (*flag)[2].str());
    if ((*flag)[1].matched) flags.insert("--no-" + (*flag)[2].str());
  }
  return flags;
}

/// Returns the flags of a program of this build, by its help.
const std::set<std::string>& flags_of(const std::string& name) {
  static std::map<std::string, std::set<std::string>> known;
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const ProcessResult help = run_program({program(name), "--help-all"});
  EXPECT_EQ(help.exit_code, 0) << name;
  return known[name] = flags_in(help.out);
}

/// Returns the flags of a script: those in its text, in that of the scripts of Python that it names, and for compare.py
/// those of its subcommands.
std::set<std::string> flags_of_script(const fs::path& script) {
  static const std::regex kScript("(?:scripts|bench)/[\\w/]+\\.py");
  const std::string text = read_text(script);
  std::set<std::string> flags = flags_in(text);
  if (script.filename() == "compare.py")
    for (const auto& entry : fs::directory_iterator(script.parent_path() / "comparisons"))
      if (entry.path().extension() == ".py") flags.merge(flags_in(read_text(entry)));
  if (script.extension() != ".sh") return flags;
  for (std::sregex_iterator name(text.begin(), text.end(), kScript), end; name != end; ++name)
    flags.merge(flags_of_script(testing::source_path(name->str())));
  if (script.filename() == "train.sh")
    flags.insert(flags_of("convoy-train").begin(), flags_of("convoy-train").end());
  return flags;
}

/// Expects the flags after each program of Convoy, and after each script, to exist.
void expect_flags(const std::string& where, const std::string& command) {
  static const std::regex kProgram(
      "(?:.*/)?(convoy-[a-z-]+|custom_program|vision_transformer|custom_op_benchmark)");
  static const std::regex kScript("((?:scripts|bench)/[\\w/]+\\.(?:py|sh))");
  static const std::regex kFlag("(--[a-zA-Z][\\w-]*)(?:=.*)?");
  std::istringstream words(command);
  std::set<std::string> flags;
  std::string name;  // of the program that the flags belong to; "" for another one
  for (std::string word, last; words >> word; last = word) {
    if (name.ends_with(".py") && last.starts_with("--") && !word.starts_with("-"))
      continue;  // the value of a flag
    std::smatch match;
    if (std::regex_match(word, match, kProgram)) {
      name = match[1];
      const bool exists = fs::exists(program(name));
      if (!exists) name = "";  // the build does not have it
      if (exists) flags = flags_of(name);
    } else if (name == "custom_program" && (word == "evaluate" || word == "export")) {
      flags = flags_of("convoy-" + word);
    } else if (std::regex_match(word, match, kScript)) {
      name = match[1];
      const fs::path script = testing::source_path(name);
      if (!fs::exists(script) && where.starts_with("bench/results/"))
        return;  // has moved since the measurement
      EXPECT_TRUE(fs::exists(script)) << where << ": " << command;
      flags = flags_of_script(script);
    } else if (word == "|" || word == ";" || word == "&&" || word.ends_with(";") || word.starts_with("#")) {
      name = "";
    } else if (!name.empty() && std::regex_match(word, match, kFlag) && !word.starts_with("--benchmark_")) {
      EXPECT_TRUE(flags.contains(match[1]))
          << where << ": " << name << " has no flag " << match[1] << ": " << command;
    }
  }
}

TEST(PageFlags, OfCommandsExist) {
  int count = 0;
  for (const std::string& page : all_pages()) {
    const fs::path file = testing::source_path(page);
    std::vector<PageCommand> commands = commands_of(file);
    const std::vector<PageCommand> spans = spans_of(file);
    commands.insert(commands.end(), spans.begin(), spans.end());
    for (const PageCommand& command : commands)
      expect_flags(page + ":" + std::to_string(command.line), command.text);
    count += static_cast<int>(commands.size());
  }
  EXPECT_GE(count, 250);
}

/// The tables of docs/from-pytorch.md: the flags in all columns but the first are those of convoy-train, or of a program
/// that the row names.
TEST(PageFlags, OfTheTablesForPyTorchExist) {
  static const std::regex kSpan("`([^`]*)`"), kProgram("convoy-[a-z-]+");
  std::istringstream lines(read_text(testing::source_path("docs/from-pytorch.md")));
  int number = 0, count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.starts_with("| ")) continue;
    const std::string convoy = line.substr(line.find(" | "));
    std::set<std::string> flags = flags_of("convoy-train");
    for (std::sregex_iterator name(convoy.begin(), convoy.end(), kProgram), end; name != end; ++name)
      flags.insert(flags_of(name->str()).begin(), flags_of(name->str()).end());
    // Those of other launchers, where the row names these.
    if (convoy.find("mpirun") != std::string::npos) flags.insert("--hostfile");
    if (line.find("torch") != std::string::npos) flags.insert({"--no-python", "--use-env"});
    for (std::sregex_iterator span(convoy.begin(), convoy.end(), kSpan), end; span != end; ++span)
      for (const std::string& flag : flags_in((*span)[1])) {
        EXPECT_TRUE(flags.contains(flag)) << "docs/from-pytorch.md:" << number << ": no program has " << flag;
        ++count;
      }
  }
  EXPECT_GE(count, 100);
}

TEST(PageFlags, BuildCommandsNamePresetsAndSettings) {
  const Json presets = Json::parse(read_text(testing::source_path("CMakePresets.json")));
  std::set<std::string> configure, workflow;
  for (const Json& preset : presets["configurePresets"]) configure.insert(preset["name"]);
  for (const Json& preset : presets["workflowPresets"]) workflow.insert(preset["name"]);
  std::string text;  // of all CMake files
  for (const char* directory : {"cmake", "tests", "kernels", "apps", "bench"})
    for (const auto& entry : fs::recursive_directory_iterator(testing::source_path(directory)))
      if (entry.path().extension() == ".cmake" || entry.path().filename() == "CMakeLists.txt")
        text += read_text(entry.path());
  text += read_text(testing::source_path("CMakeLists.txt"));
  static const std::regex kName("--preset[ =](\\w+)|-D(CONVOY_\\w+)=|--target ((?:\\w+ ?)+)|build/(\\w+)");
  int count = 0;
  for (const std::string& page : all_pages()) {
    std::vector<PageCommand> commands = commands_of(testing::source_path(page));
    const std::vector<PageCommand> spans = spans_of(testing::source_path(page));
    commands.insert(commands.end(), spans.begin(), spans.end());
    for (const PageCommand& command : commands) {
      if (command.text.find("cmake ") == std::string::npos) continue;
      SCOPED_TRACE(page + ":" + std::to_string(command.line) + ": " + command.text);
      for (std::sregex_iterator name(command.text.begin(), command.text.end(), kName), end; name != end;
           ++name) {
        ++count;
        if ((*name)[1].matched) {
          const bool is_workflow = command.text.find("--workflow") != std::string::npos;
          EXPECT_TRUE((is_workflow ? workflow : configure).contains((*name)[1])) << (*name)[1];
        } else if ((*name)[2].matched) {
          EXPECT_NE(text.find((*name)[2]), std::string::npos) << "no setting " << (*name)[2];
        } else if ((*name)[3].matched) {
          std::istringstream targets((*name)[3]);
          for (std::string target; targets >> target;)
            EXPECT_NE(text.find(target), std::string::npos) << "no target " << target;
        }
      }
    }
  }
  EXPECT_GE(count, 10);
}

}  // namespace
}  // namespace convoy::testing
