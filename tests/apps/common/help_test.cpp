// The help of every program: its width, its flags and the style of its descriptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "bench/collectives/options.h"
#include "bench/step/step.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/version.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Returns the description of each flag, without line breaks, by its long name: "--model".
std::map<std::string, std::string> help_entries(const std::string& help) {
  std::map<std::string, std::string> entries;
  std::istringstream lines(help);
  std::string flag;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find_first_not_of(' ');
    if (start == std::string::npos || start == 0) {
      flag.clear();
      continue;
    }
    if (start > 2) {
      if (!flag.empty()) entries[flag] += (entries[flag].empty() ? "" : " ") + line.substr(start);
      continue;
    }
    const std::size_t end = std::min(line.find("  ", start), line.size());
    std::string name = line.substr(start, end - start);  // "-b, --minbytes BYTES", "--[no-]download"
    const std::size_t dashes = name.find("--");
    if (dashes == std::string::npos) {  // an argument that is not a flag
      flag.clear();
      continue;
    }
    name = name.substr(dashes, name.find(' ', dashes) - dashes);
    if (name.starts_with("--[no-]")) name.erase(2, 5);
    flag = name;
    const std::size_t description = line.find_first_not_of(' ', end);
    entries[flag] = description == std::string::npos ? "" : line.substr(description);
  }
  return entries;
}

std::vector<std::string> all_programs() {
  std::vector<std::string> names;
  std::istringstream words(CONVOY_PROGRAMS);
  for (std::string name; words >> name;) names.push_back(name);
  return names;
}

class ProgramHelp : public ::testing::TestWithParam<std::string> {};

TEST_P(ProgramHelp, FitsIn80Columns) {
  for (const char* flag : {"--help", "--help-all"}) {
    const ProcessResult result = run_program({program(GetParam()), flag});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_P(ProgramHelp, VersionNamesBuildDevicesAndLibraries) {
  const ProcessResult result = run_program({program(GetParam()), "--version"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              ::testing::MatchesRegex(GetParam() + " " + kVersion +
                                      "\nbuild      [A-Za-z]+, [A-Za-z]+ [0-9.]+, (CPU only|CUDA .*)"
                                      "\ndevices    CPU with [0-9]+ cores?[;,] .*"
                                      "\nlibraries  oneDNN [0-9.]+.*, OpenBLAS [0-9.]+.*, fmt [0-9.]+.*\n"));
}

TEST(MessageWithFlag, NamesTheFlagOfAnOption) {
  EXPECT_EQ(message_with_flag(OptionError("LoaderOptions::workers", "found -1")), "--workers: found -1");
  EXPECT_EQ(message_with_flag(OptionError("LoaderOptions::prefetch", "found 0")),
            "LoaderOptions::prefetch: found 0");
  EXPECT_EQ(message_with_flag(UsageError("a mistake")), "a mistake");
  EXPECT_EQ(message_with_flag(ErrorWithRemedy<DeviceError>("out of memory", "use smaller batches")),
            "out of memory; lower --batch-size or --micro-batch-size");
  EXPECT_EQ(message_with_flag(ErrorWithRemedy<DeviceError>("no such device", "buy one")),
            "no such device; buy one");
}

INSTANTIATE_TEST_SUITE_P(Programs, ProgramHelp, ::testing::ValuesIn(all_programs()));

/// Checks which flags of a table its help shows, and that each setting has a default.
void expect_all_flags_shown(const CommandLine& line) {
  const std::map<std::string, std::string> all = help_entries(line.help(true));
  const std::map<std::string, std::string> common = help_entries(line.help(false));
  for (const CommandLine::Flag& flag : line.flags()) {
    const auto entry = all.find("--" + flag.name);
    ASSERT_NE(entry, all.end()) << flag.name;
    EXPECT_EQ(common.count("--" + flag.name), flag.details.advanced ? 0U : 1U) << flag.name;
    if (flag.details.in_config) {
      EXPECT_THAT(entry->second, HasSubstr(" [default: ")) << flag.name;
    }
  }
}

TEST(HelpTable, ShowsEveryFlagOfTraining) {
  TrainOptions options;
  expect_all_flags_shown(train_command_line(options));
}

TEST(HelpTable, ShowsEveryFlagOfBenchmarks) {
  bench::StepOptions step;
  expect_all_flags_shown(bench::step_command_line(step));
  bench::CollectiveOptions collective;
  expect_all_flags_shown(bench::collective_command_line(collective));
}

/// A table with one flag of each kind.
class HelpLayout : public ::testing::Test {
 protected:
  HelpLayout() {
    line.group("First");
    line.group("Last");
    line.add("hidden", &text, "A hidden flag", {.value = "TEXT", .advanced = true});
    line.group("First");
    line.add("kind", &text, "A kind; b is an example",
             {.short_name = 'k', .value = "NAME", .choices = {"a", "b"}});
    line.add("mode", &text, "A mode", {.value = "x|y", .choices = {"x", "y"}});
    line.add("file", &text, "A file", {.value = "FILE", .required = true});
    line.add("act", &is_on, "Act and exit", {.in_config = false});
  }

  std::string text;
  bool is_on = false;
  CommandLine line{"program", "Does something."};
};

TEST_F(HelpLayout, HelpOmitsAdvancedFlagsAndTheirGroups) {
  EXPECT_EQ(line.help(false), R"(Usage: program [FLAG]...

Does something.

First:
  -k, --kind NAME  A kind: a, b; b is an example [default: none]
  --mode x|y       A mode [default: none]
  --file FILE      A file [required]
  --act            Act and exit

Other:
  -h, --help       Print the common flags and exit
  --help-all       Print all flags and exit
  --version        Print version, devices and libraries, and exit

Advanced flags are omitted; --help-all lists all flags.
)");
}

TEST_F(HelpLayout, HelpAllShowsGroupsInOrderOfFirstMention) {
  const std::string help = line.help(true);
  EXPECT_THAT(help, HasSubstr("\nLast:\n  --hidden TEXT    A hidden flag [default: none]\n"));
  EXPECT_LT(help.find("\nFirst:\n"), help.find("\nLast:\n"));
}

TEST_F(HelpLayout, LongDescriptionsWrapBetweenWords) {
  std::string phrase = "A phrase";
  for (int i = 0; i < 20; ++i) phrase += " of many words";
  line.add("a-flag-with-a-very-long-name", &text, phrase, {.value = "VALUE"});
  const std::string help = line.help(false);
  EXPECT_THAT(help,
              HasSubstr("\n  --a-flag-with-a-very-long-name VALUE\n                          A phrase of"));
  std::istringstream lines(help);
  for (std::string each; std::getline(lines, each);) EXPECT_LE(each.size(), 80U) << each;
  EXPECT_EQ(help_entries(help).at("--a-flag-with-a-very-long-name"), phrase + " [default: none]");
}

}  // namespace
}  // namespace convoy::testing
