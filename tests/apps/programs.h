// The programs as a user starts them, and small data sets to start them on.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {

using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

std::string program(const std::string& name);

/// Four IDX files of 28x28 images in which a bright block tells the class: LeNet learns them within a few
/// epochs.
void write_digits(const std::filesystem::path& folder, int train = 320, int test = 100);

/// A BMP file of one colour.
std::string solid_bmp(int width, int height, unsigned char red, unsigned char green, unsigned char blue);

/// Class folders under train/ and test/: red, green and blue images in varied brightness.
void write_color_folders(const std::filesystem::path& folder, int size = 16, int per_class = 12);

/// A folder with digits/, where runs go too; removed at the end of the test.
class Workshop {
 public:
  Workshop();

  /// Runs convoy-train on the digits, on the CPU, with few threads and a line of log for each step; `more`
  /// comes last.
  ProcessResult train(const std::string& out, const Arguments& more = {}) const;
  Arguments train_arguments(const std::string& out, const Arguments& more = {}) const;
  ProcessResult run(const std::string& name, const Arguments& arguments,
                    const ProcessOptions& options = {}) const;

  std::filesystem::path path(const std::string& name) const { return folder_.path() / name; }
  const TempFolder& folder() const { return folder_; }
  /// All lines of OUT/log.jsonl; a line that is no JSON object fails the test.
  std::vector<Json> log(const std::string& out) const;
  std::vector<Json> events(const std::string& out, const std::string& event) const;
  Json result(const std::string& out) const;

 private:
  TempFolder folder_;
};

std::string read_text(const std::filesystem::path& file);
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& out);

}  // namespace convoy::testing
