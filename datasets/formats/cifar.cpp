#include <algorithm>
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
                  const std::string& name, std::int64_t record, int classes) {
  if (label < 0 || label >= classes)
    fail<DataError>("{}: label {} of record {}, expected 0 to {}", name, label, record, classes - 1);
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

std::vector<std::string> checked_names(std::vector<std::string> names, const std::string& name, int classes) {
  if (names.size() != static_cast<std::size_t>(classes))
    fail<DataError>("{}: {} class names, expected {}", name, names.size(), classes);
  return names;
}

}  // namespace

void parse_cifar_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                       std::int64_t count, const ImageSet& set, const CifarLabels& labels) {
  const std::int64_t record_bytes = labels.bytes + kCifarImageBytes;
  const auto expected = static_cast<std::size_t>(count * record_bytes);
  if (bytes.size() != expected)
    fail<DataError>("{}: {} bytes, expected {} ({} records of {} bytes)", name, bytes.size(), expected, count,
                    record_bytes);
  const char* record = bytes.data();
  for (std::int64_t i = 0; i < count; ++i, record += record_bytes)
    store_sample(set, begin + i, static_cast<std::uint8_t>(record[labels.bytes - 1]), record + labels.bytes,
                 name, i, labels.classes);
}

void parse_cifar_pickle(std::string_view bytes, const std::string& name, std::int64_t begin,
                        std::int64_t count, const ImageSet& set, const CifarLabels& labels) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  const auto& images = pickled_items(dictionary, "data", Kind::array, "an array of images", name);
  std::vector<std::int64_t> shape;
  for (std::size_t axis = 0; axis + 1 < images.size(); ++axis) shape.push_back(images[axis].number);
  if (shape != std::vector{count, kCifarImageBytes})
    fail<DataError>("{}: found 'data' of shape [{}], expected [{}, {}]", name, fmt::join(shape, ", "), count,
                    kCifarImageBytes);
  const auto& list = pickled_items(dictionary, labels.list, Kind::list, "a list of labels", name);
  if (std::ssize(list) != count)
    fail<DataError>("{}: {} labels, expected one for each of the {} images", name, list.size(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    const PickledValue& label = list[static_cast<std::size_t>(i)];
    if (label.kind != Kind::number)
      fail<DataError>("{}: the label of record {} is a text, expected a number", name, i);
    store_sample(set, begin + i, label.number, images.back().text.data() + i * kCifarImageBytes, name, i,
                 labels.classes);
  }
}

std::vector<std::string> parse_cifar_names(std::string_view bytes, const std::string& name,
                                           const CifarLabels& labels) {
  std::istringstream lines{std::string(bytes)};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return checked_names(std::move(names), name, labels.classes);
}

std::vector<std::string> parse_cifar_pickled_names(std::string_view bytes, const std::string& name,
                                                   const CifarLabels& labels) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  std::vector<std::string> names;
  for (const PickledValue& item :
       pickled_items(dictionary, labels.names_list, Kind::list, "a list of class names", name)) {
    if (item.kind != Kind::text) fail<DataError>("{}: a class name is a number, expected a text", name);
    names.emplace_back(item.text);
  }
  return checked_names(std::move(names), name, labels.classes);
}

namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxNamesBytes = 4096;

/// A batch file.
struct BatchFile {
  std::string name;
  std::int64_t records;
};

/// A format of the batch files.
struct BatchFormat {
  std::string directory;         // of the extracted batches
  std::string archive;           // that contains them
  std::vector<BatchFile> files;  // the last one has the test set
  std::string names_file;        // with the names of the classes
  std::uint64_t max_batch_bytes;
  void (*parse_batch)(std::string_view, const std::string&, std::int64_t, std::int64_t, const ImageSet&,
                      const CifarLabels&);
  std::vector<std::string> (*parse_names)(std::string_view, const std::string&, const CifarLabels&);

  bool is_in(const fs::path& path) const {  // read_batches() reports missing files
    return std::any_of(files.begin(), files.end(),
                       [&](const BatchFile& file) { return is_file(path / file.name); });
  }
};

/// One of the two data sets. Its pickles are what torchvision downloads; they also have the names of the images, which
/// take 0.3 MB for each batch of CIFAR-10.
struct Cifar {
  std::string name, title;
  CifarLabels labels;
  std::string md5;  // of the binary archive, from https://www.cs.toronto.edu/~kriz/cifar.html
  std::vector<std::string> classes;  // if there is no file with their names; empty: the file is required
  std::array<BatchFormat, 2> formats;
};

const std::vector<BatchFile> kCifar10Batches = {{"data_batch_1", 10000}, {"data_batch_2", 10000},
                                                {"data_batch_3", 10000}, {"data_batch_4", 10000},
                                                {"data_batch_5", 10000}, {"test_batch", 10000}};
const std::vector<BatchFile> kCifar100Batches = {{"train", 50000}, {"test", 10000}};

BatchFormat binary_format(const std::string& directory, const std::string& archive,
                          std::vector<BatchFile> files, const std::string& names_file,
                          const CifarLabels& labels) {
  std::int64_t records = 0;
  for (BatchFile& file : files) {
    file.name += ".bin";
    records = std::max(records, file.records);
  }
  const std::int64_t bytes = records * (labels.bytes + kCifarImageBytes);
  return {
      directory,         archive,          std::move(files), names_file, static_cast<std::uint64_t>(bytes),
      parse_cifar_batch, parse_cifar_names};
}

BatchFormat python_format(const std::string& name, const std::string& directory, std::vector<BatchFile> files,
                          const std::string& names_file, std::uint64_t max_mebibytes) {
  return {directory,           name + "-python.tar.gz", std::move(files),         names_file,
          max_mebibytes << 20, parse_cifar_pickle,      parse_cifar_pickled_names};
}

const Cifar kCifar10{
    .name = "cifar10",
    .title = "CIFAR-10",
    .labels = kCifar10Labels,
    .md5 = "c32a1d4ab5d03f1284b67883e8d87530",
    .classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
    .formats = {binary_format("cifar-10-batches-bin", "cifar-10-binary.tar.gz", kCifar10Batches,
                              "batches.meta.txt", kCifar10Labels),
                python_format("cifar-10", "cifar-10-batches-py", kCifar10Batches, "batches.meta", 32)}};
const Cifar kCifar100{
    .name = "cifar100",
    .title = "CIFAR-100",
    .labels = kCifar100Labels,
    .md5 = "03b5dce01913d631647c71ecec9e9cb8",
    .classes = {},
    .formats = {binary_format("cifar-100-binary", "cifar-100-binary.tar.gz", kCifar100Batches,
                              "fine_label_names.txt", kCifar100Labels),
                python_format("cifar-100", "cifar-100-python", kCifar100Batches, "meta", 160)}};

ImageSet empty_set(const std::string& name, std::int64_t count) {
  return {allocate_images(name, count, kCifarSide, kCifarSide, 3),
          Tensor::empty({count}, DType::i32, Device::cpu())};
}

/// Collects the batches, which may be added in any order.
class BatchCollector {
 public:
  BatchCollector(const Cifar& cifar, const BatchFormat& format, const std::string& name)
      : cifar_(cifar),
        format_(format),
        name_(name),
        train_(empty_set(name, 50000)),
        test_(empty_set(name, 10000)),
        found_(format.files.size()),
        names_(cifar.classes) {}

  /// Adds the file `file_name`, whose name in messages is `file`. Ignores files that are no part of the
  /// format.
  void add(const std::string& file_name, std::string_view bytes, const std::string& file) {
    if (file_name == format_.names_file) names_ = format_.parse_names(bytes, file, cifar_.labels);
    std::int64_t begin = 0;
    for (std::size_t batch = 0; batch < found_.size(); ++batch) {
      const auto& [name, records] = format_.files[batch];
      const bool is_test = batch + 1 == found_.size();
      if (file_name == name) {
        format_.parse_batch(bytes, file, is_test ? 0 : begin, records, is_test ? test_ : train_,
                            cifar_.labels);
        found_[batch] = true;
      }
      begin += records;
    }
  }

  DataSet finish(const ReadOptions& options) {
    for (std::size_t batch = 0; batch < found_.size(); ++batch)
      if (!found_[batch]) fail<DataError>("{}: {} is missing", name_, format_.files[batch].name);
    if (names_.empty()) fail<DataError>("{}: {} is missing", name_, format_.names_file);
    DataSet data;
    data.name = cifar_.name;
    data.classes = std::move(names_);
    data.train = resized(train_, options.image_size, options.workers);
    data.test = resized(test_, options.image_size, options.workers);
    data.note = fmt::format("{} from {}", cifar_.title, name_);
    return data;
  }

 private:
  const Cifar& cifar_;
  const BatchFormat& format_;
  std::string name_;
  ImageSet train_, test_;
  std::vector<bool> found_;
  std::vector<std::string> names_;
};

DataSet read_batches(const Cifar& cifar, const BatchFormat& format, const fs::path& directory,
                     const ReadOptions& options) {
  for (const BatchFile& file : format.files)
    if (!is_file(directory / file.name)) fail<DataError>("{}: {} is missing", directory.string(), file.name);
  BatchCollector batches(cifar, format, directory.string());
  for (const BatchFile& batch : format.files) {
    const fs::path file = directory / batch.name;
    batches.add(file.filename().string(), read_file(file, format.max_batch_bytes), file.string());
  }
  if (const fs::path file = directory / format.names_file; is_file(file))
    batches.add(format.names_file, read_file(file, kMaxNamesBytes), file.string());
  return batches.finish(options);
}

DataSet read_archive(const Cifar& cifar, const BatchFormat& format, const fs::path& archive,
                     const ReadOptions& options) {
  BatchCollector batches(cifar, format, archive.string());
  for_each_member(archive, format.max_batch_bytes, 8 * format.max_batch_bytes,
                  [&](const std::string& path, const std::string& bytes) {
                    batches.add(fs::path(path).filename().string(), bytes, archive.string() + ", " + path);
                  });
  return batches.finish(options);
}

DataSet read_directories(const fs::path& directory, const ReadOptions& options) {
  const ClassDirectories directories = scan_class_directories(directory, options);
  if (directories.classes != kCifar10.classes)
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

/// Returns the function that reads the files in `directory`; null if there are none. Extracted batches of CIFAR-100 are
/// called `train` and `test`, so the file with the names of the classes must be with them.
Read find_files(const Cifar& cifar, const fs::path& directory) {
  for (const fs::path& place : {directory, directory / cifar.name}) {
    for (const BatchFormat& format : cifar.formats)
      for (const fs::path& batches : {place / format.directory, place})
        if (format.is_in(batches) && (!cifar.classes.empty() || is_file(batches / format.names_file)))
          return [&cifar, &format, batches](const ReadOptions& options) {
            return read_batches(cifar, format, batches, options);
          };
    for (const BatchFormat& format : cifar.formats)
      if (const fs::path archive = place / format.archive; is_file(archive))
        return [&cifar, &format, archive](const ReadOptions& options) {
          return read_archive(cifar, format, archive, options);
        };
    if (&cifar == &kCifar10 && has_split_directories(place))
      return [=](const ReadOptions& options) { return read_directories(place, options); };
  }
  return nullptr;
}

std::string expected_files(const Cifar& cifar) {
  const auto& [binary, python] = cifar.formats;
  return fmt::format("{}, {}, {}/{} {}/{}", binary.archive, python.archive, binary.directory,
                     &cifar == &kCifar10 ? "," : " or", python.directory,
                     &cifar == &kCifar10 ? ", or train/ and test/ with class directories" : "");
}

std::vector<Mirrors> official_files(const Cifar& cifar) {
  const std::string& archive = cifar.formats.front().archive;
  return {{{.url = "https://www.cs.toronto.edu/~kriz/" + archive, .name = archive, .md5 = cifar.md5}}};
}

DataSet read_cifar(const Cifar& cifar, const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  if (const Read read = find_files(cifar, directory)) return read(options);
  fail<DataError>("{}: no {} here, expected {}", directory.string(), cifar.title, expected_files(cifar));
}

}  // namespace

const DatasetFiles kCifar10Files{
    .are_in = [](const fs::path& directory) { return find_files(kCifar10, directory) != nullptr; },
    .expected = [] { return expected_files(kCifar10); },
    .official = [] { return official_files(kCifar10); }};
const DatasetFiles kCifar100Files{
    .are_in = [](const fs::path& directory) { return find_files(kCifar100, directory) != nullptr; },
    .expected = [] { return expected_files(kCifar100); },
    .official = [] { return official_files(kCifar100); }};

DataSet read_cifar10(const fs::path& directory, const ReadOptions& options) {
  return read_cifar(kCifar10, directory, options);
}

DataSet read_cifar100(const fs::path& directory, const ReadOptions& options) {
  return read_cifar(kCifar100, directory, options);
}

}  // namespace convoy::data
