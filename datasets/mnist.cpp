#include <filesystem>
#include <string>
#include <vector>

#include "datasets/files.h"
#include "datasets/idx.h"
#include "datasets/readers.h"
#include "datasets/resize.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace fs = std::filesystem;
namespace {

constexpr int kClasses = 10;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{4} << 30;

struct SplitFiles {
  fs::path images, labels;
};

/// The file of this stem, in any of the spellings that are about: with '-' or '.' before "idx", plain or
/// gzip.
fs::path find_idx(const fs::path& folder, const std::string& stem, const std::string& kind) {
  for (const char* separator : {"-", "."})
    for (const char* ending : {"", ".gz"})
      if (const fs::path file = folder / (stem + separator + kind + "-ubyte" + ending); is_file(file))
        return file;
  return {};
}

SplitFiles find_split(const fs::path& folder, const std::string& split) {
  return {find_idx(folder, split + "-images", "idx3"), find_idx(folder, split + "-labels", "idx1")};
}

ImageSet read_split(const SplitFiles& files) {
  ImageSet set;
  set.images = parse_idx_images(read_file(files.images, kMostFileBytes), files.images.string());
  set.labels = parse_idx_labels(read_file(files.labels, kMostFileBytes), files.labels.string(), kClasses);
  if (set.images.size(0) != set.labels.size(0))
    fail<DataError>("{}: {} labels, expected one for each of the {} images of {}", files.labels.string(),
                    set.labels.size(0), set.images.size(0), files.images.string());
  return set;
}

}  // namespace

DataSet read_mnist(const fs::path& folder, const ReadOptions& options) {
  check_read_options(options);
  require_folder(folder);
  // "MNIST/raw" is where torchvision keeps them.
  for (const fs::path& place : {folder, folder / "mnist", folder / "MNIST" / "raw"}) {
    const SplitFiles train = find_split(place, "train");
    const SplitFiles test = find_split(place, "t10k");
    if (train.images.empty() && train.labels.empty() && test.images.empty() && test.labels.empty()) continue;
    for (const auto& [file, name] :
         {std::pair(train.images, "train-images-idx3-ubyte"),
          std::pair(train.labels, "train-labels-idx1-ubyte"),
          std::pair(test.images, "t10k-images-idx3-ubyte"), std::pair(test.labels, "t10k-labels-idx1-ubyte")})
      if (file.empty()) fail<DataError>("{}: {} is missing, plain or .gz", place.string(), name);
    DataSet data;
    data.name = "mnist";
    for (int digit = 0; digit < kClasses; ++digit) data.classes.push_back(std::to_string(digit));
    data.train = read_split(train);
    data.test = read_split(test);
    for (ImageSet* set : {&data.train, &data.test}) *set = resized(*set, options.image_size, options.workers);
    if (data.train.images.size(1) != data.test.images.size(1) ||
        data.train.images.size(2) != data.test.images.size(2))
      fail<DataError>("{}: images of {}, expected the shape of the training images, {}", test.images.string(),
                      data.test.images.shape().text(), data.train.images.shape().text());
    data.note = "MNIST from " + place.string();
    return data;
  }
  fail<DataError>(
      "{}: no MNIST here: expected {{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte, plain or .gz",
      folder.string());
}

}  // namespace convoy
