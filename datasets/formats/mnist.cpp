#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/parsers.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

// The magic numbers: two zero bytes, the element type (8: unsigned bytes), the number of dimensions.
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;
constexpr std::uint32_t kMaxIdxSide = 16384;  // pixels; also keeps count * rows * columns below 2^60

std::uint32_t read_big32(GzipReader& in, const std::string& name) {
  std::array<unsigned char, 4> word{};
  if (in.read(word.data(), word.size()) != word.size())
    fail<DataError>("{}: ends within the IDX header", name);
  return (std::uint32_t{word[0]} << 24) | (std::uint32_t{word[1]} << 16) | (std::uint32_t{word[2]} << 8) |
         word[3];
}

void expect_magic(GzipReader& in, const std::string& name, std::uint32_t expected, const char* what) {
  const std::uint32_t magic = read_big32(in, name);
  if (magic != expected)
    fail<DataError>("{}: not an IDX file of {}: it starts with {:#010x}, expected {:#010x}", name, what,
                    magic, expected);
}

/// Throws DataError if the file is too small for `bytes`. Called before memory is allocated.
void expect_possible(const GzipReader& in, const std::string& name, std::uint32_t count,
                     std::uint64_t bytes) {
  if (count == 0) fail<DataError>("{}: 0 items according to the header, expected at least 1", name);
  if (count > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()) || bytes > in.max_output())
    fail<DataError>(
        "{}: {} items of {} bytes according to the header, but the file can hold at most {} bytes", name,
        count, bytes, in.max_output());
}

void read_all(GzipReader& in, const std::string& name, void* out, std::size_t bytes) {
  const std::size_t found = in.read(out, bytes);
  if (found != bytes) fail<DataError>("{}: {} bytes after the header, expected {}", name, found, bytes);
  char extra = 0;
  if (in.read(&extra, 1) != 0) fail<DataError>("{}: more data than the {} bytes of its header", name, bytes);
}

}  // namespace

Tensor parse_idx_images(std::string_view bytes, const std::string& name) {
  GzipReader in(bytes, name);
  expect_magic(in, name, kImagesMagic, "images");
  const std::uint32_t count = read_big32(in, name);
  const std::uint32_t rows = read_big32(in, name);
  const std::uint32_t columns = read_big32(in, name);
  if (rows == 0 || rows > kMaxIdxSide || columns == 0 || columns > kMaxIdxSide)
    fail<DataError>("{}: images of {} x {}, expected sides of 1 to {}", name, rows, columns, kMaxIdxSide);
  const std::uint64_t total = std::uint64_t{count} * rows * columns;
  expect_possible(in, name, count, total);
  const Tensor images = allocate_images(name, count, rows, columns, 1);
  read_all(in, name, images.view().data, images.bytes());
  return images;
}

Tensor parse_idx_labels(std::string_view bytes, const std::string& name, int classes) {
  GzipReader in(bytes, name);
  expect_magic(in, name, kLabelsMagic, "labels");
  const std::uint32_t count = read_big32(in, name);
  expect_possible(in, name, count, count);
  std::vector<std::uint8_t> values(count);
  read_all(in, name, values.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] >= classes)
      fail<DataError>("{}: label {} of item {}, expected 0 to {}", name, values[i], i, classes - 1);
  return Tensor::from(std::vector<std::int32_t>(values.begin(), values.end()), {std::int64_t{count}},
                      Device::cpu());
}

namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 30;

// Images and labels for training, and for testing.
constexpr std::array kFiles = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                               "t10k-labels-idx1-ubyte"};
constexpr const char* kGzip = ".gz";

/// One of the data sets in these four files.
struct Digits {
  std::string name, title;
  std::string torchvision;  // the directory in which torchvision has its raw/
  std::vector<std::string> classes;
  std::vector<std::string> mirrors;        // directories on web servers, with identical copies
  std::array<const char*, 4> md5;          // of kFiles, compressed
  std::vector<std::int32_t> first_labels;  // of the training set; they tell the data sets apart
};

// The authors' site of MNIST (yann.lecun.com) does not serve the files any more.
const Digits kMnist{.name = "mnist",
                    .title = "MNIST",
                    .torchvision = "MNIST",
                    .classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                    .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                                "https://storage.googleapis.com/cvdf-datasets/mnist/"},
                    .md5 = {"f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                            "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"},
                    .first_labels = {5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5}};
// Xiao et al., "Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms", arXiv:1708.07747.
const Digits kFashionMnist{
    .name = "fashion-mnist",
    .title = "Fashion-MNIST",
    .torchvision = "FashionMNIST",
    .classes = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                "Ankle boot"},
    .mirrors = {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"},
    .md5 = {"8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"},
    .first_labels = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9}};

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

ImageSet read_split(const fs::path& images, const fs::path& labels, int classes) {
  ImageSet set;
  set.images = parse_idx_images(read_file(images, kMaxFileBytes), images.string());
  set.labels = parse_idx_labels(read_file(labels, kMaxFileBytes), labels.string(), classes);
  if (set.images.size(0) != set.labels.size(0))
    fail<DataError>("{}: {} labels, expected one for each of the {} images of {}", labels.string(),
                    set.labels.size(0), set.images.size(0), images.string());
  return set;
}

/// Throws DataError if the training labels are those of the other data set, whose files have the same names.
void expect_labels_of(const Digits& digits, const Tensor& labels, const fs::path& place) {
  const Digits& other = &digits == &kMnist ? kFashionMnist : kMnist;
  const auto count = std::ssize(other.first_labels);
  if (labels.size(0) >= count && labels.rows(0, count).to_vector<std::int32_t>() == other.first_labels)
    fail<DataError>("{}: found the labels of {}, expected those of {}", place.string(), other.title,
                    digits.title);
}

/// Returns where the files are: in `directory`, in its subdirectory of the name of the data set, or in raw/ as
/// torchvision stores them, also below MNIST/ or FashionMNIST/. Returns an empty path if no file is found.
fs::path find_files(const Digits& digits, const fs::path& directory) {
  for (const fs::path& place :
       {directory, directory / digits.name, directory / digits.torchvision / "raw", directory / "raw"})
    if (std::ranges::any_of(kFiles, [&](const char* name) { return !find_idx(place, name).empty(); }))
      return place;
  return {};
}

std::string expected_files(const Digits& digits) {
  return fmt::format("{}, {}, {} and {}, plain or {}, also in {}/raw/", kFiles[0], kFiles[1], kFiles[2],
                     kFiles[3], kGzip, digits.torchvision);
}

std::vector<Mirrors> official_files(const Digits& digits) {
  std::vector<Mirrors> files;
  for (const char* stem : kFiles) {
    const std::string name = fmt::format("{}{}", stem, kGzip);
    const char* const md5 = digits.md5[files.size()];
    files.emplace_back();
    for (const std::string& mirror : digits.mirrors)
      files.back().push_back({.url = mirror + name, .name = name, .md5 = md5});
  }
  return files;
}

DatasetFiles files_of(const Digits& digits) {
  return {.are_in = [&](const fs::path& directory) { return !find_files(digits, directory).empty(); },
          .expected = [&] { return expected_files(digits); },
          .official = [&] { return official_files(digits); }};
}

DataSet read_digits(const Digits& digits, const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  require_directory(directory);
  const fs::path place = find_files(digits, directory);
  if (place.empty())
    fail<DataError>("{}: no {} here, expected {}", directory.string(), digits.title, expected_files(digits));
  std::vector<fs::path> files;
  for (const char* name : kFiles)
    if (files.push_back(find_idx(place, name)); files.back().empty())
      fail<DataError>("{}: {} is missing, plain or .gz", place.string(), name);
  DataSet data;
  data.name = digits.name;
  data.classes = digits.classes;
  const int classes = static_cast<int>(digits.classes.size());
  data.train = read_split(files[0], files[1], classes);
  expect_labels_of(digits, data.train.labels, place);
  data.test = read_split(files[2], files[3], classes);
  for (ImageSet* set : {&data.train, &data.test}) *set = resized(*set, options.image_size, options.workers);
  if (data.train.images.size(1) != data.test.images.size(1) ||
      data.train.images.size(2) != data.test.images.size(2))
    fail<DataError>("{}: images of {}, expected the shape of the training images, {}", files[2].string(),
                    data.test.images.shape().text(), data.train.images.shape().text());
  data.note = fmt::format("{} from {}", digits.title, place.string());
  return data;
}

}  // namespace

const DatasetFiles kMnistFiles = files_of(kMnist), kFashionMnistFiles = files_of(kFashionMnist);

DataSet read_mnist(const fs::path& directory, const ReadOptions& options) {
  return read_digits(kMnist, directory, options);
}

DataSet read_fashion_mnist(const fs::path& directory, const ReadOptions& options) {
  return read_digits(kFashionMnist, directory, options);
}

}  // namespace convoy::data
