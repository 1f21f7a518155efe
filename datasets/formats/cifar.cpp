#include <algorithm>
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

std::vector<std::string> parse_cifar_names(std::string_view bytes, const std::string& name,
                                           const CifarLabels& labels) {
  std::istringstream lines{std::string(bytes)};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (std::ssize(names) != labels.classes)
    fail<DataError>("{}: {} class names, expected {}", name, names.size(), labels.classes);
  return names;
}

namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxNamesBytes = 4096;

/// A batch file.
struct BatchFile {
  std::string name;
  std::int64_t records;
};

/// One of the two data sets.
struct Cifar {
  std::string name, title;
  CifarLabels labels;
  std::string directory, archive;    // of the extracted batches, and of the file that contains it
  std::string md5;                   // of the archive, from https://www.cs.toronto.edu/~kriz/cifar.html
  std::string for_python;            // the directory of the files for Python, which are not read
  std::vector<BatchFile> files;      // the last one has the test set
  std::string names_file;            // with the names of the classes
  std::vector<std::string> classes;  // if there is no such file; empty: it is required

  bool is_in(const fs::path& path) const {  // read_batches() reports missing batches
    return std::ranges::any_of(files, [&](const BatchFile& file) { return is_file(path / file.name); }) &&
           (!classes.empty() || is_file(path / names_file));
  }
  /// Returns the size of the largest batch.
  std::uint64_t max_batch_bytes() const {
    return static_cast<std::uint64_t>(files.front().records * (labels.bytes + kCifarImageBytes));
  }
};

const Cifar kCifar10{
    .name = "cifar10",
    .title = "CIFAR-10",
    .labels = kCifar10Labels,
    .directory = "cifar-10-batches-bin",
    .archive = "cifar-10-binary.tar.gz",
    .md5 = "c32a1d4ab5d03f1284b67883e8d87530",
    .for_python = "cifar-10-batches-py",
    .files = {{"data_batch_1.bin", 10000},
              {"data_batch_2.bin", 10000},
              {"data_batch_3.bin", 10000},
              {"data_batch_4.bin", 10000},
              {"data_batch_5.bin", 10000},
              {"test_batch.bin", 10000}},
    .names_file = "batches.meta.txt",
    .classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"}};
const Cifar kCifar100{.name = "cifar100",
                      .title = "CIFAR-100",
                      .labels = kCifar100Labels,
                      .directory = "cifar-100-binary",
                      .archive = "cifar-100-binary.tar.gz",
                      .md5 = "03b5dce01913d631647c71ecec9e9cb8",
                      .for_python = "cifar-100-python",
                      .files = {{"train.bin", 50000}, {"test.bin", 10000}},
                      .names_file = "fine_label_names.txt",
                      .classes = {}};

ImageSet empty_set(const std::string& name, std::int64_t count) {
  return {allocate_images(name, count, kCifarSide, kCifarSide, 3),
          Tensor::empty({count}, DType::i32, Device::cpu())};
}

/// Collects the batches, which may be added in any order.
class BatchCollector {
 public:
  BatchCollector(const Cifar& cifar, const std::string& name)
      : cifar_(cifar),
        name_(name),
        train_(empty_set(name, 50000)),
        test_(empty_set(name, 10000)),
        found_(cifar.files.size()),
        names_(cifar.classes) {}

  /// Adds the file `file_name`, whose name in messages is `file`. Ignores files that are no part of the set.
  void add(const std::string& file_name, std::string_view bytes, const std::string& file) {
    if (file_name == cifar_.names_file) names_ = parse_cifar_names(bytes, file, cifar_.labels);
    std::int64_t begin = 0;
    for (std::size_t batch = 0; batch < found_.size(); ++batch) {
      const auto& [name, records] = cifar_.files[batch];
      const bool is_test = batch + 1 == found_.size();
      if (file_name == name) {
        parse_cifar_batch(bytes, file, is_test ? 0 : begin, records, is_test ? test_ : train_, cifar_.labels);
        found_[batch] = true;
      }
      begin += records;
    }
  }

  DataSet finish(const ReadOptions& options) {
    for (std::size_t batch = 0; batch < found_.size(); ++batch)
      if (!found_[batch]) fail<DataError>("{}: {} is missing", name_, cifar_.files[batch].name);
    if (names_.empty()) fail<DataError>("{}: {} is missing", name_, cifar_.names_file);
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
  std::string name_;
  ImageSet train_, test_;
  std::vector<bool> found_;
  std::vector<std::string> names_;
};

DataSet read_batches(const Cifar& cifar, const fs::path& directory, const ReadOptions& options) {
  BatchCollector batches(cifar, directory.string());
  const auto add = [&](const std::string& name, std::uint64_t max_bytes) {
    if (const fs::path file = directory / name; is_file(file))
      batches.add(name, read_file(file, max_bytes), file.string());
  };
  for (const BatchFile& batch : cifar.files) add(batch.name, cifar.max_batch_bytes());
  add(cifar.names_file, kMaxNamesBytes);
  return batches.finish(options);
}

DataSet read_archive(const Cifar& cifar, const fs::path& archive, const ReadOptions& options) {
  BatchCollector batches(cifar, archive.string());
  for_each_member(archive, cifar.max_batch_bytes(), 8 * cifar.max_batch_bytes(),
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

/// Returns the function that reads the files in `directory`; null if there are none.
Read find_files(const Cifar& cifar, const fs::path& directory) {
  for (const fs::path& place : {directory, directory / cifar.name}) {
    for (const fs::path& batches : {place / cifar.directory, place})
      if (cifar.is_in(batches))
        return
            [&cifar, batches](const ReadOptions& options) { return read_batches(cifar, batches, options); };
    if (const fs::path archive = place / cifar.archive; is_file(archive))
      return [&cifar, archive](const ReadOptions& options) { return read_archive(cifar, archive, options); };
    if (&cifar == &kCifar10 && has_split_directories(place))
      return [=](const ReadOptions& options) { return read_directories(place, options); };
  }
  return nullptr;
}

std::string expected_files(const Cifar& cifar) {
  return fmt::format("{} or {}/{} (docs/from-pytorch.md converts {}/)", cifar.archive, cifar.directory,
                     &cifar == &kCifar10 ? ", or train/ and test/ with class directories" : "",
                     cifar.for_python);
}

std::vector<Mirrors> official_files(const Cifar& cifar) {
  return {{{.url = "https://www.cs.toronto.edu/~kriz/" + cifar.archive,
            .name = cifar.archive,
            .md5 = cifar.md5}}};
}

DatasetFiles files_of(const Cifar& cifar) {
  return {.are_in = [&](const fs::path& directory) { return find_files(cifar, directory) != nullptr; },
          .expected = [&] { return expected_files(cifar); },
          .official = [&] { return official_files(cifar); }};
}

DataSet read_cifar(const Cifar& cifar, const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  if (const Read read = find_files(cifar, directory)) return read(options);
  fail<DataError>("{}: no {} here, expected {}", directory.string(), cifar.title, expected_files(cifar));
}

}  // namespace

const DatasetFiles kCifar10Files = files_of(kCifar10), kCifar100Files = files_of(kCifar100);

DataSet read_cifar10(const fs::path& directory, const ReadOptions& options) {
  return read_cifar(kCifar10, directory, options);
}

DataSet read_cifar100(const fs::path& directory, const ReadOptions& options) {
  return read_cifar(kCifar100, directory, options);
}

}  // namespace convoy::data
