// The table of data sets that programs know by name. Thread-safe after the last add().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/formats/readers.h"

namespace convoy::data {

/// Where the images of a data set come from.
enum class DatasetSource {
  official,        // official files, which can be found by their names and downloaded
  user_directory,  // a directory that the user names
  generated,       // no files
};

/// A row of the table of data sets.
struct DatasetEntry {
  std::string name;                                 // "cifar10": the value of --dataset
  DatasetSource source = DatasetSource::generated;  // of the images
  /// Reads the data set. Ignores `directory` if the source is `generated`.
  std::function<DataSet(const std::filesystem::path& directory, const ReadOptions& options)> read;
  /// Null unless the source is `official`.
  const DatasetFiles* files = nullptr;
  /// [H, W, C] of all images unless ReadOptions::image_size is set; {0, 0, 0} if it depends on the files.
  std::array<std::int64_t, 3> image_shape = {};
  /// The number of classes; 0 if it depends on the files.
  std::int64_t classes = 0;
  /// Whether the images are photographs, which keep their class when they are cropped and mirrored.
  bool natural_images = false;

  /// Returns whether all images have the shape image_shape.
  bool has_fixed_shape() const { return image_shape[0] > 0; }
};

/// Adds a data set of one's own, which then is a value of --dataset. Call it at the beginning of main(): it
/// is not thread-safe. Throws UsageError if the name is taken or a part of the entry is missing.
void add(DatasetEntry entry);

/// Returns all rows of the table.
const std::deque<DatasetEntry>& all_datasets();

/// Returns the row of the data set `name`. Throws UsageError with the nearest known name if there is none.
const DatasetEntry& find_dataset(std::string_view name);

/// Returns the names of all data sets, in the order of the table.
std::vector<std::string> dataset_names();

}  // namespace convoy::data
