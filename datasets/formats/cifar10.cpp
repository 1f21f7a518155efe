#include <array>
#include <functional>
#include <sstream>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/parsers.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

using Kind = PickledValue::Kind;

/// Stores an image, which begins with its red plane, and its label as sample `index` of `set`. `record` is
/// its number in the file `name`.
void store_sample(const ImageSet& set, std::int64_t index, std::int64_t label, const char* planes,
                  const std::string& name, std::int64_t record) {
  if (label < 0 || label >= kCifarClasses)
    fail<DataError>("{}: label {} of record {}, expected 0 to {}", name, label, record, kCifarClasses - 1);
  set.labels.view().as<std::int32_t>()[index] = static_cast<std::int32_t>(label);
  auto* const pixels = set.images.view().as<std::uint8_t>() + index * kCifarPixels * 3;
  for (std::int64_t pixel = 0; pixel < kCifarPixels; ++pixel)
    for (std::int64_t c = 0; c < 3; ++c)
      pixels[pixel * 3 + c] = static_cast<std::uint8_t>(planes[c * kCifarPixels + pixel]);
}

/// Returns the items of the value `key` of a pickled dictionary. Throws DataError unless it is a `kind`.
const std::vector<PickledValue>& pickled_items(const PickledValue& dictionary, std::string_view key,
                                               PickledValue::Kind kind, std::string_view expected,
                                               const std::string& name) {
  const PickledValue* const value = dictionary.find(key);
  if (value == nullptr) fail<DataError>("{}: found no '{}', expected {}", name, key, expected);
  if (value->kind != kind)
    fail<DataError>("{}: found '{}' of another type, expected {}", name, key, expected);
  return *value->items;
}

std::vector<std::string> checked_names(std::vector<std::string> names, const std::string& name) {
  if (names.size() != static_cast<std::size_t>(kCifarClasses))
    fail<DataError>("{}: {} class names, expected {}", name, names.size(), kCifarClasses);
  return names;
}

}  // namespace

void parse_cifar10_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                         std::int64_t count, const ImageSet& set) {
  const auto expected = static_cast<std::size_t>(count * kCifarRecordBytes);
  if (bytes.size() != expected)
    fail<DataError>("{}: {} bytes, expected {} ({} records of {} bytes)", name, bytes.size(), expected, count,
                    kCifarRecordBytes);
  const char* record = bytes.data();
  for (std::int64_t i = 0; i < count; ++i, record += kCifarRecordBytes)
    store_sample(set, begin + i, static_cast<std::uint8_t>(record[0]), record + 1, name, i);
}

void parse_cifar10_pickle(std::string_view bytes, const std::string& name, std::int64_t begin,
                          std::int64_t count, const ImageSet& set) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  constexpr std::int64_t kValues = 3 * kCifarPixels;
  const auto& images = pickled_items(dictionary, "data", Kind::array, "an array of images", name);
  std::vector<std::int64_t> shape;
  for (std::size_t axis = 0; axis + 1 < images.size(); ++axis) shape.push_back(images[axis].number);
  if (shape != std::vector{count, kValues})
    fail<DataError>("{}: found 'data' of shape [{}], expected [{}, {}]", name, fmt::join(shape, ", "), count,
                    kValues);
  const auto& labels = pickled_items(dictionary, "labels", Kind::list, "a list of labels", name);
  if (std::ssize(labels) != count)
    fail<DataError>("{}: {} labels, expected one for each of the {} images", name, labels.size(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    const PickledValue& label = labels[static_cast<std::size_t>(i)];
    if (label.kind != Kind::number)
      fail<DataError>("{}: the label of record {} is a text, expected a number", name, i);
    store_sample(set, begin + i, label.number, images.back().text.data() + i * kValues, name, i);
  }
}

std::vector<std::string> parse_cifar10_names(std::string_view bytes, const std::string& name) {
  std::istringstream lines{std::string(bytes)};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return checked_names(std::move(names), name);
}

std::vector<std::string> parse_cifar10_pickled_names(std::string_view bytes, const std::string& name) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  std::vector<std::string> names;
  for (const PickledValue& item :
       pickled_items(dictionary, "label_names", Kind::list, "a list of class names", name)) {
    if (item.kind != Kind::text) fail<DataError>("{}: a class name is a number, expected a text", name);
    names.emplace_back(item.text);
  }
  return checked_names(std::move(names), name);
}

namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kClassNames = {"airplane", "automobile", "bird",  "cat",  "deer",
                                              "dog",      "frog",       "horse", "ship", "truck"};

// The last file is the test set.
constexpr std::array<const char*, 6> kBatchNames = {"data_batch_1", "data_batch_2", "data_batch_3",
                                                    "data_batch_4", "data_batch_5", "test_batch"};
constexpr std::int64_t kBatchRecords = 10000;
constexpr std::uint64_t kMaxNamesBytes = 4096;

/// A format of the six batch files.
struct BatchFormat {
  std::string directory;   // of the extracted batches
  std::string archive;     // that contains them
  std::string ending;      // of their names
  std::string names_file;  // with the names of the classes
  std::uint64_t max_batch_bytes;
  void (*parse_batch)(std::string_view, const std::string&, std::int64_t, std::int64_t, const ImageSet&);
  std::vector<std::string> (*parse_names)(std::string_view, const std::string&);
};
const BatchFormat kBinary{.directory = "cifar-10-batches-bin",
                          .archive = "cifar-10-binary.tar.gz",
                          .ending = ".bin",
                          .names_file = "batches.meta.txt",
                          .max_batch_bytes = kBatchRecords * kCifarRecordBytes,
                          .parse_batch = parse_cifar10_batch,
                          .parse_names = parse_cifar10_names};
// What torchvision downloads. Its files also have the names of the images, which take 0.3 MB.
const BatchFormat kPython{.directory = "cifar-10-batches-py",
                          .archive = "cifar-10-python.tar.gz",
                          .ending = "",
                          .names_file = "batches.meta",
                          .max_batch_bytes = std::uint64_t{32} << 20,
                          .parse_batch = parse_cifar10_pickle,
                          .parse_names = parse_cifar10_pickled_names};

ImageSet empty_set(const std::string& name, std::int64_t count) {
  return {allocate_images(name, count, kCifarSide, kCifarSide, 3),
          Tensor::empty({count}, DType::i32, Device::cpu())};
}

/// Collects the six batches, which may be added in any order.
class BatchCollector {
 public:
  BatchCollector(const BatchFormat& format, const std::string& name)
      : format_(format),
        name_(name),
        train_(empty_set(name, 5 * kBatchRecords)),
        test_(empty_set(name, kBatchRecords)) {}

  /// Adds the file `file_name`, whose name in messages is `file`. Ignores files that are no part of the
  /// format.
  void add(const std::string& file_name, std::string_view bytes, const std::string& file) {
    if (file_name == format_.names_file) names_ = format_.parse_names(bytes, file);
    for (std::size_t batch = 0; batch < kBatchNames.size(); ++batch) {
      if (file_name != kBatchNames[batch] + format_.ending) continue;
      const bool is_test = batch == kBatchNames.size() - 1;
      format_.parse_batch(bytes, file, is_test ? 0 : static_cast<std::int64_t>(batch) * kBatchRecords,
                          kBatchRecords, is_test ? test_ : train_);
      found_[batch] = true;
    }
  }

  DataSet finish(const ReadOptions& options) {
    for (std::size_t batch = 0; batch < kBatchNames.size(); ++batch)
      if (!found_[batch]) fail<DataError>("{}: {}{} is missing", name_, kBatchNames[batch], format_.ending);
    DataSet data;
    data.name = "cifar10";
    data.classes = std::move(names_);
    data.train = resized(train_, options.image_size, options.workers);
    data.test = resized(test_, options.image_size, options.workers);
    data.note = "CIFAR-10 from " + name_;
    return data;
  }

 private:
  const BatchFormat& format_;
  std::string name_;
  ImageSet train_, test_;
  std::array<bool, kBatchNames.size()> found_{};
  std::vector<std::string> names_ = kClassNames;
};

bool has_batches(const BatchFormat& format, const fs::path& directory) {
  for (const char* name : kBatchNames)
    if (is_file(directory / (name + format.ending))) return true;  // read_batches() reports missing ones
  return false;
}

DataSet read_batches(const BatchFormat& format, const fs::path& directory, const ReadOptions& options) {
  for (const char* name : kBatchNames)
    if (!is_file(directory / (name + format.ending)))
      fail<DataError>("{}: {}{} is missing", directory.string(), name, format.ending);
  BatchCollector batches(format, directory.string());
  for (const char* name : kBatchNames) {
    const fs::path file = directory / (name + format.ending);
    batches.add(file.filename().string(), read_file(file, format.max_batch_bytes), file.string());
  }
  if (const fs::path file = directory / format.names_file; is_file(file))
    batches.add(format.names_file, read_file(file, kMaxNamesBytes), file.string());
  return batches.finish(options);
}

DataSet read_archive(const BatchFormat& format, const fs::path& archive, const ReadOptions& options) {
  BatchCollector batches(format, archive.string());
  for_each_member(archive, format.max_batch_bytes, 8 * format.max_batch_bytes,
                  [&](const std::string& path, const std::string& bytes) {
                    batches.add(fs::path(path).filename().string(), bytes, archive.string() + ", " + path);
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
  data.note = fmt::format("CIFAR-10 ({}) from {}", directories.all_jpeg() ? "JPEG" : "images", data.note);
  return data;
}

/// Reads the data set from the files that were found.
using Read = std::function<DataSet(const ReadOptions&)>;

/// Returns the function that reads the files in `directory`; null if there are none.
Read find_files(const fs::path& directory) {
  for (const fs::path& place : {directory, directory / "cifar10"}) {
    for (const BatchFormat* format : {&kBinary, &kPython})
      for (const fs::path& batches : {place / format->directory, place})
        if (has_batches(*format, batches))
          return [=](const ReadOptions& options) { return read_batches(*format, batches, options); };
    for (const BatchFormat* format : {&kBinary, &kPython})
      if (const fs::path archive = place / format->archive; is_file(archive))
        return [=](const ReadOptions& options) { return read_archive(*format, archive, options); };
    if (has_split_directories(place))
      return [=](const ReadOptions& options) { return read_directories(place, options); };
  }
  return nullptr;
}

bool are_in(const fs::path& directory) { return find_files(directory) != nullptr; }

std::string expected_files() {
  return fmt::format("{}, {}, {}/, {}/, or train/ and test/ with class directories", kBinary.archive,
                     kPython.archive, kBinary.directory, kPython.directory);
}

// The checksum is that of https://www.cs.toronto.edu/~kriz/cifar.html.
std::vector<Mirrors> official_files() {
  return {{{.url = fmt::format("https://www.cs.toronto.edu/~kriz/{}", kBinary.archive),
            .name = kBinary.archive,
            .md5 = "c32a1d4ab5d03f1284b67883e8d87530"}}};
}

}  // namespace

const DatasetFiles kCifar10Files{.are_in = are_in, .expected = expected_files, .official = official_files};

DataSet read_cifar10(const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  if (const Read read = find_files(directory)) return read(options);
  fail<DataError>("{}: no CIFAR-10 here, expected {}", directory.string(), expected_files());
}

}  // namespace convoy::data
