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
  using enum DatasetSource;
  static std::deque<DatasetEntry> rows = {
      // name, source, reader, files, image shape, classes, natural images
      {"cifar10", official, read_cifar10, &kCifar10Files, {32, 32, 3}, 10, true},
      {"cifar100", official, read_cifar100, &kCifar100Files, {32, 32, 3}, 100, true},
      {"mnist", official, read_mnist, &kMnistFiles, {28, 28, 1}, 10, false},
      {"fashion-mnist", official, read_fashion_mnist, &kFashionMnistFiles, {28, 28, 1}, 10, false},
      {"folder", user_directory, read_image_folder, nullptr, {}, 0, true},
      {"shards", user_directory, read_shards, nullptr, {}, 0, true},
      {"shapes", generated, read_shapes, nullptr, {32, 32, 3}, 10, false}};
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
