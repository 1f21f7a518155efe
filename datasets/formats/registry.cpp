#include "convoy/datasets/formats/registry.h"

#include "convoy/kernels/base/nearest_name.h"

namespace convoy::data {
namespace {

DataSet read_shapes(const std::filesystem::path& /*directory*/, const ReadOptions& options) {
  ShapesOptions shapes{.seed = options.seed};
  if (options.image_size > 0) shapes.size = options.image_size;
  return generate_shapes(shapes);
}

constexpr std::array kDatasets{
    DatasetEntry{.name = "cifar10",
                 .source = DatasetSource::official,
                 .read = read_cifar10,
                 .files = &kCifar10Files,
                 .image_shape = {32, 32, 3},
                 .classes = 10,
                 .natural_images = true},
    DatasetEntry{.name = "mnist",
                 .source = DatasetSource::official,
                 .read = read_mnist,
                 .files = &kMnistFiles,
                 .image_shape = {28, 28, 1},
                 .classes = 10},
    DatasetEntry{.name = "folder",
                 .source = DatasetSource::user_directory,
                 .read = read_image_folder,
                 .natural_images = true},
    DatasetEntry{.name = "shapes",
                 .source = DatasetSource::generated,
                 .read = read_shapes,
                 .image_shape = {32, 32, 3},
                 .classes = 10},
};

}  // namespace

std::span<const DatasetEntry> all_datasets() { return kDatasets; }

const DatasetEntry& find_dataset(std::string_view name) {
  for (const DatasetEntry& entry : kDatasets)
    if (entry.name == name) return entry;
  throw UsageError(unknown_name("data set", name, dataset_names()));
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetEntry& entry : kDatasets) names.emplace_back(entry.name);
  return names;
}

}  // namespace convoy::data
