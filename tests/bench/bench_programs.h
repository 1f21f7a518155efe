// Runs of the programs of bench/programs and bench/step, whose results are the file of --json.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

/// A program, always started with the same first arguments.
class BenchProgram : public ::testing::Test {
 protected:
  explicit BenchProgram(std::string name, Arguments arguments = {})
      : name_(std::move(name)), arguments_(std::move(arguments)) {}

  ProcessResult run(const Arguments& more, const ProcessOptions& options = {}) const {
    Arguments all = {std::filesystem::read_symlink("/proc/self/exe").parent_path() / name_};
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, options);
  }
  /// Returns the results of a successful run; `out` becomes its output.
  Json measure(Arguments more, const ProcessOptions& options = {}, std::string* out = nullptr) const {
    const std::string file = directory.path() / "figures.json";
    more.insert(more.end(), {"--json", file});
    const ProcessResult result = run(more, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (out != nullptr) *out = result.out;
    std::ifstream in(file);
    return Json::parse(in);
  }
  void expect_refusal(const Arguments& arguments, const std::string& what, int code = 2) const {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(name_ + ": error: "));
    EXPECT_THAT(result.err, ::testing::HasSubstr(what));
    EXPECT_EQ(result.out, "");
  }

  TempDirectory directory;

 private:
  std::string name_;
  Arguments arguments_;
};

}  // namespace convoy::testing
