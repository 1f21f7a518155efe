// Folders of images, one for each class: what there is, before anything is decoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "datasets/readers.h"

namespace convoy {

/// All image files of a data set, those for training first.
struct ClassFolders {
  std::vector<std::string> classes;          // sorted folder names
  std::vector<std::filesystem::path> files;  // sorted within each class, classes in order
  std::vector<std::int32_t> labels;
  std::size_t train_count = 0;  // files[0, train_count) are for training, the others for testing

  bool all_jpeg() const;
};

/// Does this folder hold train/ and test/ (or Training, val, …), each with folders in it?
bool has_split_folders(const std::filesystem::path& folder);

/// Finds the files; where `folder` holds the classes themselves, test_fraction of each becomes the test set,
/// drawn from Philox by (seed, class). DataError for an empty class, and where train and test differ in their
/// classes.
ClassFolders scan_class_folders(const std::filesystem::path& folder, const ReadOptions& options);

/// Decodes them all; fills train, test, classes and warnings.
DataSet load_class_folders(const ClassFolders& folders, const std::filesystem::path& folder,
                           const ReadOptions& options);

}  // namespace convoy
