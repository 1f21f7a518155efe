#include <array>
#include <optional>
#include <sstream>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/archive.h"
#include "convoy/datasets/formats/cifar10_batch.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kClassNames = {"airplane", "automobile", "bird",  "cat",  "deer",
                                              "dog",      "frog",       "horse", "ship", "truck"};

// The last file is the test set.
constexpr std::array<const char*, 6> kBatchNames = {"data_batch_1.bin", "data_batch_2.bin",
                                                    "data_batch_3.bin", "data_batch_4.bin",
                                                    "data_batch_5.bin", "test_batch.bin"};
constexpr std::int64_t kBatchRecords = 10000;
constexpr std::uint64_t kBatchBytes = kBatchRecords * kCifarRecordBytes;
constexpr const char* kBatchDirectory = "cifar-10-batches-bin";
constexpr const char* kArchiveName = "cifar-10-binary.tar.gz";
constexpr const char* kNamesFile = "batches.meta.txt";
constexpr std::uint64_t kMaxNamesBytes = 4096;

ImageSet empty_set(const std::string& name, std::int64_t count) {
  return {allocate_images(name, count, kCifarSide, kCifarSide, 3),
          Tensor::empty({count}, DType::i32, Device::cpu())};
}

/// Collects the six batches, which may be added in any order.
class BatchCollector {
 public:
  explicit BatchCollector(const std::string& name)
      : name_(name), train_(empty_set(name, 5 * kBatchRecords)), test_(empty_set(name, kBatchRecords)) {}

  void add(std::size_t batch, std::string_view bytes, const std::string& file) {
    const bool is_test = batch == kBatchNames.size() - 1;
    parse_cifar10_batch(bytes, file, is_test ? 0 : static_cast<std::int64_t>(batch) * kBatchRecords,
                        kBatchRecords, is_test ? test_ : train_);
    found_[batch] = true;
  }

  /// Reads one class name per line. Throws DataError unless there are ten.
  void add_names(const std::string& text, const std::string& file) {
    std::istringstream lines(text);
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) names.push_back(line);
    }
    if (names.size() != static_cast<std::size_t>(kCifarClasses))
      fail<DataError>("{}: {} class names, expected {}", file, names.size(), kCifarClasses);
    names_ = std::move(names);
  }

  DataSet finish(const ReadOptions& options) {
    for (std::size_t batch = 0; batch < kBatchNames.size(); ++batch)
      if (!found_[batch]) fail<DataError>("{}: {} is missing", name_, kBatchNames[batch]);
    DataSet data;
    data.name = "cifar10";
    data.classes = std::move(names_);
    data.train = resized(train_, options.image_size, options.workers);
    data.test = resized(test_, options.image_size, options.workers);
    data.note = "CIFAR-10 from " + name_;
    return data;
  }

 private:
  std::string name_;
  ImageSet train_, test_;
  std::array<bool, kBatchNames.size()> found_{};
  std::vector<std::string> names_ = kClassNames;
};

std::optional<std::size_t> batch_of(const std::string& file_name) {
  for (std::size_t batch = 0; batch < kBatchNames.size(); ++batch)
    if (file_name == kBatchNames[batch]) return batch;
  return std::nullopt;
}

bool has_batches(const fs::path& directory) {
  for (const char* name : kBatchNames)
    if (is_file(directory / name)) return true;  // read_batches() reports missing ones
  return false;
}

DataSet read_batches(const fs::path& directory, const ReadOptions& options) {
  for (const char* name : kBatchNames)
    if (!is_file(directory / name)) fail<DataError>("{}: {} is missing", directory.string(), name);
  BatchCollector batches(directory.string());
  for (std::size_t batch = 0; batch < kBatchNames.size(); ++batch) {
    const fs::path file = directory / kBatchNames[batch];
    batches.add(batch, read_file(file, kBatchBytes), file.string());
  }
  if (const fs::path file = directory / kNamesFile; is_file(file))
    batches.add_names(read_file(file, kMaxNamesBytes), file.string());
  return batches.finish(options);
}

DataSet read_archive(const fs::path& archive, const ReadOptions& options) {
  BatchCollector batches(archive.string());
  for_each_member(archive, kBatchBytes, 8 * kBatchBytes,
                  [&](const std::string& path, const std::string& bytes) {
                    const std::string member = archive.string() + ", " + path;
                    const std::string file_name = fs::path(path).filename().string();
                    if (const std::optional<std::size_t> batch = batch_of(file_name))
                      batches.add(*batch, bytes, member);
                    if (file_name == kNamesFile) batches.add_names(bytes, member);
                  });
  return batches.finish(options);
}

DataSet read_directories(const fs::path& directory, const ReadOptions& options) {
  const ClassDirectories directories = scan_class_directories(directory, options);
  if (directories.classes != kClassNames)
    fail<DataError>("{}: {} class directories ({} …), expected CIFAR-10's ten, airplane to truck",
                    directory.string(), directories.classes.size(), directories.classes.front());
  ReadOptions load = options;
  // Enlarged copies of CIFAR-10 are in circulation; the original images are 32 x 32.
  if (load.image_size == 0) load.image_size = kCifarSide;
  DataSet data = load_class_directories(directories, directory, load);
  data.name = "cifar10";
  data.note =
      fmt::format("CIFAR-10 ({}) from {}", directories.all_jpeg() ? "JPEG" : "images", directory.string());
  return data;
}

/// A layout of the files: the function that reads it, null if no files were found, and its path.
struct Layout {
  DataSet (*read)(const fs::path&, const ReadOptions&) = nullptr;
  fs::path path;
};

Layout find_layout(const fs::path& directory) {
  for (const fs::path& place : {directory, directory / "cifar10"}) {
    for (const fs::path& batches : {place / kBatchDirectory, place})
      if (has_batches(batches)) return {read_batches, batches};
    if (fs::path archive = place / kArchiveName; is_file(archive)) return {read_archive, archive};
    if (has_split_directories(place)) return {read_directories, place};
  }
  return {};
}

bool are_in(const fs::path& directory) { return find_layout(directory).read != nullptr; }

std::string expected_files() {
  return fmt::format("{}, {}/, or train/ and test/ with class directories", kArchiveName, kBatchDirectory);
}

// The checksum is that of https://www.cs.toronto.edu/~kriz/cifar.html.
std::vector<Mirrors> official_files() {
  return {{{.url = fmt::format("https://www.cs.toronto.edu/~kriz/{}", kArchiveName),
            .name = kArchiveName,
            .md5 = "c32a1d4ab5d03f1284b67883e8d87530"}}};
}

}  // namespace

const DatasetFiles kCifar10Files{.are_in = are_in, .expected = expected_files, .official = official_files};

void parse_cifar10_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                         std::int64_t count, const ImageSet& set) {
  const auto expected = static_cast<std::size_t>(count * kCifarRecordBytes);
  if (bytes.size() != expected)
    fail<DataError>("{}: {} bytes, expected {} ({} records of {} bytes)", name, bytes.size(), expected, count,
                    kCifarRecordBytes);
  auto* labels = set.labels.view().as<std::int32_t>() + begin;
  auto* pixels = set.images.view().as<std::uint8_t>() + begin * kCifarPixels * 3;
  const auto* record = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::int64_t i = 0; i < count; ++i, record += kCifarRecordBytes, pixels += kCifarPixels * 3) {
    if (record[0] >= kCifarClasses)
      fail<DataError>("{}: label {} of record {}, expected 0 to {}", name, record[0], i, kCifarClasses - 1);
    labels[i] = record[0];
    const std::uint8_t* planes = record + 1;
    for (std::int64_t pixel = 0; pixel < kCifarPixels; ++pixel)
      for (std::int64_t c = 0; c < 3; ++c) pixels[pixel * 3 + c] = planes[c * kCifarPixels + pixel];
  }
}

DataSet read_cifar10(const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  const Layout layout = find_layout(directory);
  if (layout.read != nullptr) return layout.read(layout.path, options);
  fail<DataError>("{}: no CIFAR-10 here, expected {}", directory.string(), expected_files());
}

}  // namespace convoy::data
