#include <filesystem>
#include <string>
#include <vector>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/idx.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace fs = std::filesystem;
namespace {

constexpr int kClasses = 10;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 30;

constexpr const char* kTrainImages = "train-images-idx3-ubyte";
constexpr const char* kTrainLabels = "train-labels-idx1-ubyte";
constexpr const char* kTestImages = "t10k-images-idx3-ubyte";
constexpr const char* kTestLabels = "t10k-labels-idx1-ubyte";
constexpr const char* kGzip = ".gz";

struct SplitFiles {
  fs::path images, labels;
};

/// Returns the file with this official name in any of the common spellings: "-idx" or ".idx", plain or gzip.
/// Returns an empty path if there is none.
fs::path find_idx(const fs::path& directory, const std::string& name) {
  std::string dotted = name;
  dotted[name.find("-idx")] = '.';
  for (const std::string& spelling : {name, dotted})
    for (const char* ending : {"", kGzip})
      if (fs::path file = directory / (spelling + ending); is_file(file)) return file;
  return {};
}

ImageSet read_split(const SplitFiles& files) {
  ImageSet set;
  set.images = parse_idx_images(read_file(files.images, kMaxFileBytes), files.images.string());
  set.labels = parse_idx_labels(read_file(files.labels, kMaxFileBytes), files.labels.string(), kClasses);
  if (set.images.size(0) != set.labels.size(0))
    fail<DataError>("{}: {} labels, expected one for each of the {} images of {}", files.labels.string(),
                    set.labels.size(0), set.images.size(0), files.images.string());
  return set;
}

/// Returns where the files are: in `directory`, in its subdirectory mnist, or in MNIST/raw, as torchvision
/// stores them, also if `directory` is that MNIST. Returns an empty path if no file is found.
fs::path find_files(const fs::path& directory) {
  for (const fs::path& place :
       {directory, directory / "mnist", directory / "MNIST" / "raw", directory / "raw"})
    for (const char* name : {kTrainImages, kTrainLabels, kTestImages, kTestLabels})
      if (!find_idx(place, name).empty()) return place;
  return {};
}

bool are_in(const fs::path& directory) { return !find_files(directory).empty(); }

std::string expected_files() {
  return fmt::format("{}, {}, {} and {}, plain or {}, also in MNIST/raw/", kTrainImages, kTrainLabels,
                     kTestImages, kTestLabels, kGzip);
}

// The authors' site (yann.lecun.com) does not serve the files any more; the mirrors are identical copies.
std::vector<Mirrors> official_files() {
  const auto mirrors = [](const char* stem, const std::string& md5) -> Mirrors {
    const std::string name = fmt::format("{}{}", stem, kGzip);
    return {{.url = "https://ossci-datasets.s3.amazonaws.com/mnist/" + name, .name = name, .md5 = md5},
            {.url = "https://storage.googleapis.com/cvdf-datasets/mnist/" + name, .name = name, .md5 = md5}};
  };
  return {mirrors(kTrainImages, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
          mirrors(kTrainLabels, "d53e105ee54ea40749a09fcbcd1e9432"),
          mirrors(kTestImages, "9fb629c4189551a2d022fa330f9573f3"),
          mirrors(kTestLabels, "ec29112dd5afa0611ce80d1b7f02629c")};
}

}  // namespace

const DatasetFiles kMnistFiles{.are_in = are_in, .expected = expected_files, .official = official_files};

DataSet read_mnist(const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  const fs::path place = find_files(directory);
  if (place.empty()) fail<DataError>("{}: no MNIST here, expected {}", directory.string(), expected_files());
  const SplitFiles train{find_idx(place, kTrainImages), find_idx(place, kTrainLabels)};
  const SplitFiles test{find_idx(place, kTestImages), find_idx(place, kTestLabels)};
  for (const auto& [file, name] :
       {std::pair(train.images, kTrainImages), std::pair(train.labels, kTrainLabels),
        std::pair(test.images, kTestImages), std::pair(test.labels, kTestLabels)})
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

}  // namespace convoy::data
