// Runs the programs as subprocesses on small data sets.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

/// Returns the arguments and `more` after them.
Arguments with(Arguments arguments, const Arguments& more);

/// Matches a program that has ended with code 0.
::testing::Matcher<const ProcessResult&> Succeeds();
/// Does the same if its stdout matches.
::testing::Matcher<const ProcessResult&> Prints(const ::testing::Matcher<const std::string&>& out);
/// Matches a program that has ended with this code, and with the text on stderr.
::testing::Matcher<const ProcessResult&> FailsWith(int code, const std::string& text = "");
void PrintTo(const ProcessResult& result, std::ostream* out);

/// Returns the path of a program of this build.
std::string program(const std::string& name);

/// Writes four IDX files of 28x28 images. The position of a bright block determines the class, so LeNet
/// learns them within a few epochs.
void write_digits(const std::filesystem::path& directory, int train = 320, int test = 100);

/// Returns a BMP file of one color.
std::string solid_bmp(int width, int height, unsigned char red, unsigned char green, unsigned char blue);

/// Writes class directories under train/ and test/ with red, green and blue images of varying brightness.
void write_color_directories(const std::filesystem::path& directory, int size = 16, int per_class = 12);

/// A temporary directory for the data set digits/ and the runs of a test.
class Workshop {
 public:
  Workshop();

  /// Runs convoy-train on the digits, on the CPU, with one thread, two epochs of batches of 32 and a log line
  /// per step. `more` is appended and overrides these flags.
  ProcessResult train(const std::string& out, const Arguments& more = {}) const;
  Arguments train_arguments(const std::string& out, const Arguments& more = {}) const;
  ProcessResult run(const std::string& name, const Arguments& arguments,
                    const ProcessOptions& options = {}) const;

  std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
  const TempDirectory& directory() const { return directory_; }
  /// Returns all events of OUT/log.jsonl. A line that docs/log.schema.json does not allow fails the test.
  std::vector<Json> log(const std::string& out) const;
  /// Returns the events of one kind.
  std::vector<Json> events(const std::string& out, const std::string& event) const;
  /// Returns the result event. A log without exactly one fails the test.
  Json result(const std::string& out) const;
  /// Trains as train() does, expects success, and returns the result event.
  Json trained(const std::string& out, const Arguments& more = {}) const;
  /// Does the same, and returns the hash of the parameters.
  std::string trained_hash(const std::string& out, const Arguments& more = {}) const;
  /// Runs convoy-evaluate on a checkpoint or run with one thread on the CPU, unless `more` names others. Expects success, and
  /// returns the JSON result.
  Json evaluated(const std::string& checkpoint, const Arguments& more = {},
                 const ProcessOptions& options = {}) const;
  /// Returns a field of the events of one kind, which are numbers.
  std::vector<double> numbers(const std::string& out, const std::string& event,
                              const std::string& field) const;
  /// Returns the directory of the checkpoint of a step.
  std::string checkpoint(const std::string& out, int step) const;

 private:
  TempDirectory directory_;
};

/// Returns the only error line of a program's stderr. Other numbers of them fail the test.
std::string error_line(const ProcessResult& run);
std::string read_text(const std::filesystem::path& file);
/// Returns the checkpoints of a run in the order of their steps.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& out);

}  // namespace convoy::testing
