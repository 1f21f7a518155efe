// Data sets that store the images of each class in a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "convoy/datasets/formats/readers.h"

namespace convoy::data {

/// What a directory holds and is not used, counted by its kind.
class LeftOut {
 public:
  /// Counts one file, link or directory of a kind, such as "dangling links". `example` stands for it in the text, with
  /// the number of those that are alike if `counts` is set.
  void add(const std::string& kind, const std::string& example, bool counts = false);
  /// Returns whether nothing was counted.
  bool empty() const { return groups_.empty(); }
  /// Returns a line such as "left out: dangling links: 1 (a -> b); files of other types: 12 (.gif 8, .txt 4)"; "" if
  /// nothing was counted.
  std::string text() const;

 private:
  struct Group {
    std::int64_t count = 0;
    std::map<std::string, std::int64_t> examples;  // with their numbers; 0: not shown
  };
  std::map<std::string, Group> groups_;
};

/// Returns the image files in `directory` and below it, in the order of their paths. Hidden files and directories
/// are not visited; links are followed. Counts in `left_out` whatever is no image. Every program finds images
/// with this function. Throws DataError if a directory cannot be listed, or if they are more than 16 deep.
std::vector<std::filesystem::path> find_images(const std::filesystem::path& directory, LeftOut& left_out);

/// Returns a line for each of the files, which are below `directory`, with its size and the time of its last change.
std::string list_files(const std::vector<std::filesystem::path>& files,
                       const std::filesystem::path& directory);

/// Returns the names of `of` that are not in `in`, the first five, or "none".
std::string names_missing(std::vector<std::string> in, std::vector<std::string> of);

/// The image files of a data set before decoding: those for training, for testing and for validation.
struct ClassDirectories {
  std::vector<std::string> classes;          // sorted directory names
  std::vector<std::filesystem::path> files;  // sorted within each class, classes in order
  std::vector<std::int32_t> labels;
  std::size_t train_count = 0;  // files[0, train_count) are for training
  std::size_t test_count = 0;   // the next ones are for testing, the rest for validation
  bool is_split = false;        // whether this library has drawn the test files
  LeftOut left_out;

  /// Returns whether the names of all files end in .jpg or .jpeg.
  bool all_jpeg() const;
};

/// Returns whether `directory` has subdirectories train and test (or Training, val, …) that contain
/// directories.
bool has_split_directories(const std::filesystem::path& directory);

/// Finds the image files. If `directory` contains the class directories themselves, test_fraction of each
/// class becomes the test set; the files are drawn with Philox from (seed, class). Throws DataError if a
/// class is empty, if there is one class whose directory contains class directories, or if train, test and val
/// have different classes.
ClassDirectories scan_class_directories(const std::filesystem::path& directory, const ReadOptions& options);

/// Decodes all files. Sets the images, classes, warnings and note of the result; the caller sets the name.
/// The note is the directory, with the number of scaled images unless a warning has it. Throws DataError if a
/// file cannot be decoded, unless options.skip_corrupt is set.
DataSet load_class_directories(const ClassDirectories& directories, const std::filesystem::path& directory,
                               const ReadOptions& options);

}  // namespace convoy::data
