// Data sets that store the images of each class in a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "convoy/datasets/formats/readers.h"

namespace convoy::data {

/// The number of files that were left out because they are no images by their names.
class LeftOutFiles {
 public:
  /// Counts one file.
  void add(const std::filesystem::path& file);
  /// Returns the number of files.
  std::int64_t count() const { return count_; }
  /// Returns a line such as "12 files of other types left out: .gif 8, .txt 4".
  std::string text() const;

 private:
  std::map<std::string, std::int64_t> by_extension_;  // in lower case, with the dot
  std::int64_t count_ = 0;
};

/// The image files of a data set before decoding. Training files come first.
struct ClassDirectories {
  std::vector<std::string> classes;          // sorted directory names
  std::vector<std::filesystem::path> files;  // sorted within each class, classes in order
  std::vector<std::int32_t> labels;
  std::size_t train_count = 0;  // files[0, train_count) are for training, the rest for testing
  bool is_split = false;        // whether this library has drawn the test files
  LeftOutFiles left_out;

  /// Returns whether the names of all files end in .jpg or .jpeg.
  bool all_jpeg() const;
};

/// Returns whether `directory` has subdirectories train and test (or Training, val, …) that contain
/// directories.
bool has_split_directories(const std::filesystem::path& directory);

/// Finds the image files. If `directory` contains the class directories themselves, test_fraction of each
/// class becomes the test set; the files are drawn with Philox from (seed, class). Throws DataError if a
/// class is empty, or if train and test have different classes.
ClassDirectories scan_class_directories(const std::filesystem::path& directory, const ReadOptions& options);

/// Decodes all files. Sets train, test, classes, warnings and note of the result; the caller sets the name.
/// The note is the directory, with the number of scaled images unless a warning has it. Throws DataError if a
/// file cannot be decoded, unless options.skip_corrupt is set.
DataSet load_class_directories(const ClassDirectories& directories, const std::filesystem::path& directory,
                               const ReadOptions& options);

}  // namespace convoy::data
