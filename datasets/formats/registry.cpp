#include "convoy/datasets/formats/registry.h"

#include <algorithm>

#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::data {
namespace {

DataSet read_shapes(const std::filesystem::path& /*directory*/, const ReadOptions& options) {
  ShapesOptions shapes{.seed = options.seed};
  if (options.image_size > 0) shapes.size = options.image_size;
  return generate_shapes(shapes);
}

// A deque, so that references to rows remain valid.
std::deque<DatasetEntry>& table() {
  static std::deque<DatasetEntry> rows = {
      DatasetEntry{.name = "cifar10",
                   .source = DatasetSource::official,
                   .read = read_cifar10,
                   .files = &kCifar10Files,
                   .image_shape = {32, 32, 3},
                   .classes = 10,
                   .natural_images = true},
      DatasetEntry{.name = "cifar100",
                   .source = DatasetSource::official,
                   .read = read_cifar100,
                   .files = &kCifar100Files,
                   .image_shape = {32, 32, 3},
                   .classes = 100,
                   .natural_images = true},
      DatasetEntry{.name = "mnist",
                   .source = DatasetSource::official,
                   .read = read_mnist,
                   .files = &kMnistFiles,
                   .image_shape = {28, 28, 1},
                   .classes = 10},
      DatasetEntry{.name = "fashion-mnist",
                   .source = DatasetSource::official,
                   .read = read_fashion_mnist,
                   .files = &kFashionMnistFiles,
                   .image_shape = {28, 28, 1},
                   .classes = 10},
      DatasetEntry{.name = "folder",
                   .source = DatasetSource::user_directory,
                   .read = read_image_folder,
                   .natural_images = true},
      DatasetEntry{.name = "shards",
                   .source = DatasetSource::user_directory,
                   .read = read_shards,
                   .natural_images = true},
      DatasetEntry{.name = "shapes",
                   .source = DatasetSource::generated,
                   .read = read_shapes,
                   .image_shape = {32, 32, 3},
                   .classes = 10},
  };
  return rows;
}

}  // namespace

void check_read_options(const ReadOptions& options) {
  check_image_side(options.image_size);
  check(options.test_fraction > 0 && options.test_fraction < 1,
        "test fraction {}: expected more than 0 and less than 1", options.test_fraction);
  check_option(options.workers >= 0, "ReadOptions::workers", "found {}, expected 0 or more", options.workers);
}

void add(DatasetEntry entry) {
  const std::vector<std::string> known = dataset_names();
  check(std::ranges::find(known, entry.name) == known.end(),
        "data set '{}': found another one with this name, expected a new one", entry.name);
  check(!entry.name.empty() && entry.read != nullptr,
        "data set '{}': found no name or no function that reads it, expected both", entry.name);
  check((entry.source == DatasetSource::official) == (entry.files != nullptr),
        "data set '{}': expected a list of files exactly if the source is official", entry.name);
  table().push_back(std::move(entry));
}

const std::deque<DatasetEntry>& all_datasets() { return table(); }

const DatasetEntry& find_dataset(std::string_view name) {
  for (const DatasetEntry& entry : table())
    if (entry.name == name) return entry;
  throw UsageError(unknown_name("data set", name, dataset_names()));
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetEntry& entry : table()) names.push_back(entry.name);
  return names;
}

}  // namespace convoy::data
