// Tests of the CIFAR-10 and MNIST readers: all layouts, and invalid files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "convoy/datasets/formats/parsers.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/formats/registry.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::big32;
using ::testing::HasSubstr;
using testing::message_of;
using testing::Picture;
using testing::TempDirectory;

constexpr int kCount = 3, kRows = 5, kColumns = 4;

std::string idx_images(int count = kCount) {
  std::string bytes =
      big32(0x803) + big32(static_cast<std::uint32_t>(count)) + big32(kRows) + big32(kColumns);
  for (int i = 0; i < count * kRows * kColumns; ++i) bytes += static_cast<char>(i * 3);
  return bytes;
}

std::string idx_labels(const std::string& labels) {
  return big32(0x801) + big32(static_cast<std::uint32_t>(labels.size())) + labels;
}

/// Writes the four files with these names, each encoded by `pack`.
template <class F>
void write_mnist(const TempDirectory& directory, const fs::path& under, const std::string& separator,
                 const std::string& ending, F&& pack) {
  for (const char* split : {"train", "t10k"}) {
    directory.write(under / (split + ("-images" + separator) + "idx3-ubyte" + ending), pack(idx_images()));
    directory.write(under / (split + ("-labels" + separator) + "idx1-ubyte" + ending),
                    pack(idx_labels(std::string("\7\0\2", 3))));
  }
}

std::string as_it_is(const std::string& bytes) { return bytes; }

TEST(Mnist, ReadsEveryLayout) {
  for (const fs::path& under : {fs::path(""), fs::path("mnist"), fs::path("MNIST/raw"), fs::path("raw")})
    for (const std::string& separator : {std::string("-"), std::string(".")})
      for (const bool packed : {false, true}) {
        const TempDirectory directory;
        write_mnist(directory, under, separator, packed ? ".gz" : "",
                    [&](const std::string& bytes) { return packed ? testing::gzip(bytes) : bytes; });
        EXPECT_TRUE(data::kMnistFiles.are_in(directory.path()));
        const data::DataSet data = data::read_mnist(directory.path());
        EXPECT_EQ(data.name, "mnist");
        EXPECT_EQ(data.classes.size(), 10u);
        EXPECT_THAT(data.note, HasSubstr(directory.path().string()));
        for (const data::ImageSet& set : {data.train, data.test}) {
          EXPECT_EQ(set.images.shape(), (Shape{kCount, kRows, kColumns, 1}));
          EXPECT_EQ(set.labels.to_vector<std::int32_t>(), (std::vector<std::int32_t>{7, 0, 2}));
          const auto pixels = set.images.to_vector<std::uint8_t>();
          for (std::size_t i = 0; i < pixels.size(); ++i)
            EXPECT_EQ(pixels[i], static_cast<std::uint8_t>(i * 3));
        }
      }
}

TEST(Mnist, ResizesOnRequest) {
  const TempDirectory directory;
  write_mnist(directory, "", "-", "", as_it_is);
  EXPECT_EQ(data::read_mnist(directory.path(), {.image_size = 8}).image_shape(), (Shape{8, 8, 1}));
}

TEST(Mnist, ReportsMissingFiles) {
  const TempDirectory directory;
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path()); }),
              AllOf(HasSubstr(directory.path().string()), HasSubstr("no MNIST here")));
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path() / "none"); }),
              HasSubstr("no such directory"));
  write_mnist(directory, "", "-", "", as_it_is);
  fs::remove(directory.path() / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path()); }),
              HasSubstr("t10k-labels-idx1-ubyte"));
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path() / "train-images-idx3-ubyte"); }),
              HasSubstr("expected a directory"));
}

TEST(Mnist, RefusesDifferentNumbersOfImagesAndLabels) {
  const TempDirectory directory;
  write_mnist(directory, "", "-", "", as_it_is);
  directory.write("train-labels-idx1-ubyte", idx_labels(std::string("\1\2", 2)));
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path()); }),
              AllOf(HasSubstr("train-labels-idx1-ubyte: 2 labels"), HasSubstr("3 images")));
}

TEST(FashionMnist, ReadsItsOwnDirectories) {
  for (const fs::path& under :
       {fs::path(""), fs::path("fashion-mnist"), fs::path("FashionMNIST/raw"), fs::path("raw")}) {
    const TempDirectory directory;
    write_mnist(directory, under, "-", ".gz", [](const std::string& bytes) { return testing::gzip(bytes); });
    EXPECT_TRUE(data::kFashionMnistFiles.are_in(directory.path()));
    EXPECT_EQ(data::kMnistFiles.are_in(directory.path()), under == "" || under == "raw") << under;
    const data::DataSet data = data::read_fashion_mnist(directory.path());
    EXPECT_EQ(data.name, "fashion-mnist");
    ASSERT_EQ(data.classes.size(), 10u);
    EXPECT_EQ(data.classes[9], "Ankle boot");
    EXPECT_THAT(data.note, ::testing::StartsWith("Fashion-MNIST from "));
    EXPECT_EQ(data.train.labels.to_vector<std::int32_t>(), (std::vector<std::int32_t>{7, 0, 2}));
  }
}

TEST(FashionMnist, TellsItsFilesFromThoseOfMnist) {
  const TempDirectory directory;
  write_mnist(directory, "", "-", "", as_it_is);
  directory.write("train-images-idx3-ubyte", idx_images(12));
  // The first labels of the two training sets.
  directory.write("train-labels-idx1-ubyte", idx_labels(std::string("\5\0\4\1\11\2\1\3\1\4\3\5", 12)));
  EXPECT_THAT(message_of<DataError>([&] { data::read_fashion_mnist(directory.path()); }),
              HasSubstr("found the labels of MNIST, expected those of Fashion-MNIST"));
  EXPECT_EQ(data::read_mnist(directory.path()).train.size(), 12);
  directory.write("train-labels-idx1-ubyte", idx_labels(std::string("\11\0\0\3\0\2\7\2\5\5\0\11", 12)));
  EXPECT_THAT(message_of<DataError>([&] { data::read_mnist(directory.path()); }),
              HasSubstr("found the labels of Fashion-MNIST, expected those of MNIST"));
  EXPECT_EQ(data::read_fashion_mnist(directory.path()).train.size(), 12);
}

std::string images_refusal(const std::string& bytes) {
  const std::string message = message_of<DataError>([&] { data::parse_idx_images(bytes, "bad.idx"); });
  EXPECT_THAT(message, HasSubstr("bad.idx"));
  return message;
}

std::string labels_refusal(const std::string& bytes) {
  const std::string message = message_of<DataError>([&] { data::parse_idx_labels(bytes, "bad.idx", 10); });
  EXPECT_THAT(message, HasSubstr("bad.idx"));
  return message;
}

TEST(Idx, EveryTruncationIsRefused) {
  for (const bool packed : {false, true}) {
    const std::string whole = packed ? testing::gzip(idx_images()) : idx_images();
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_NE(images_refusal(whole.substr(0, size)), "") << size << " of " << whole.size();
  }
}

TEST(Idx, DamagedGzipIsDetectedByItsChecksum) {
  std::string bytes = testing::gzip(idx_images());
  bytes[bytes.size() - 6] = static_cast<char>(bytes[bytes.size() - 6] ^ 1);
  EXPECT_THAT(images_refusal(bytes), HasSubstr("gzip stream is damaged"));
}

TEST(Idx, OtherFormatsAreRefusedByTheirMagicNumber) {
  EXPECT_THAT(images_refusal("hello, world"), HasSubstr("0x68656c6c, expected 0x00000803"));
  EXPECT_THAT(images_refusal(idx_labels("\1")), HasSubstr("0x00000801, expected 0x00000803"));
  EXPECT_THAT(labels_refusal(idx_images()), HasSubstr("0x00000803, expected 0x00000801"));
  EXPECT_THAT(images_refusal(testing::gzip("hello, world")), HasSubstr("expected 0x00000803"));
}

TEST(Idx, HugeSizesAreRefusedWithoutAllocating) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::uint32_t count : {0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
    const std::string header = big32(0x803) + big32(count) + big32(16384) + big32(16384);
    EXPECT_THAT(images_refusal(header), HasSubstr(std::to_string(count)));
    EXPECT_THAT(images_refusal(testing::gzip(header)), HasSubstr("can hold at most"));
    EXPECT_THAT(labels_refusal(big32(0x801) + big32(count)), HasSubstr("can hold at most"));
  }
  EXPECT_THAT(images_refusal(big32(0x803) + big32(1) + big32(0x7FFFFFFF) + big32(0x7FFFFFFF)),
              HasSubstr("expected sides of 1 to 16384"));
  // Petabytes cannot be filled in this time. Nine errors take well under a millisecond.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Idx, EmptySetsAreRefused) {
  EXPECT_THAT(images_refusal(big32(0x803) + big32(0) + big32(28) + big32(28)), HasSubstr("0 items"));
  EXPECT_THAT(images_refusal(big32(0x803) + big32(1) + big32(0) + big32(28)), HasSubstr("0 x 28"));
}

TEST(Idx, ExcessDataIsRefused) {
  EXPECT_THAT(images_refusal(idx_images() + "x"), HasSubstr("more data than the 60 bytes"));
  // A decompression bomb: it is decompressed to at most one byte more than the header gives.
  const std::string bomb = testing::gzip(idx_images() + std::string(std::size_t{64} << 20, '\0'));
  EXPECT_THAT(images_refusal(bomb), HasSubstr("more data than the 60 bytes"));
}

TEST(Idx, LabelsOutsideTheClassesAreRefused) {
  EXPECT_THAT(labels_refusal(idx_labels("\1\2\12")), HasSubstr("label 10 of item 2, expected 0 to 9"));
}

constexpr std::uintmax_t kBatchBytes = 10000 * 3073;
constexpr const char* kBatches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/// Returns a record: the label, then a red, a green and a blue plane; pixel p of channel c is p + 50 c +
/// label, modulo 256.
std::string cifar_record(int label) {
  std::string record(1, static_cast<char>(label));
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) record += static_cast<char>(p + 50 * c + label);
  return record;
}

/// Writes six files of the official size, in which all but the first record are zero. The files are sparse,
/// so they use little disk space.
void write_batches(const TempDirectory& directory, const fs::path& under) {
  for (int batch = 0; batch < 6; ++batch)
    fs::resize_file(directory.write(under / kBatches[batch], cifar_record(batch + 1)), kBatchBytes);
}

void expect_first_record(const data::ImageSet& set, std::int64_t index, int label) {
  EXPECT_EQ(set.labels.rows(index, index + 1).item(), label);
  const auto pixels = set.images.rows(index, index + 1).to_vector<std::uint8_t>();
  for (std::size_t p = 0; p < 1024; ++p)
    for (std::size_t c = 0; c < 3; ++c)
      ASSERT_EQ(pixels[p * 3 + c], static_cast<std::uint8_t>(p + 50 * c + static_cast<std::size_t>(label)))
          << "pixel " << p << " channel " << c;
}

void expect_batches(const data::DataSet& data) {
  EXPECT_EQ(data.name, "cifar10");
  ASSERT_EQ(data.train.images.shape(), (Shape{50000, 32, 32, 3}));
  ASSERT_EQ(data.test.images.shape(), (Shape{10000, 32, 32, 3}));
  for (int batch = 0; batch < 5; ++batch) expect_first_record(data.train, batch * 10000, batch + 1);
  expect_first_record(data.test, 0, 6);
}

TEST(Cifar10, ReadsExtractedBatches) {
  const TempDirectory directory;
  write_batches(directory, "cifar-10-batches-bin");
  EXPECT_TRUE(data::kCifar10Files.are_in(directory.path()));
  const data::DataSet data = data::read_cifar10(directory.path());
  expect_batches(data);
  EXPECT_EQ(data.classes.front(), "airplane");
  EXPECT_EQ(data.classes.back(), "truck");
  EXPECT_THAT(data.note, HasSubstr("cifar-10-batches-bin"));
}

TEST(Cifar10, ReadsTheBatchDirectoryWithItsClassNames) {
  const TempDirectory directory;
  write_batches(directory, "");
  directory.write("batches.meta.txt", "a\nb\r\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  EXPECT_TRUE(data::kCifar10Files.are_in(directory.path()));
  const data::DataSet data = data::read_cifar10(directory.path());
  EXPECT_EQ(data.classes, (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}));
}

std::vector<std::pair<std::string, std::string>> archive_members() {
  std::vector<std::pair<std::string, std::string>> members = {{"cifar-10-batches-bin/readme.html", "<html>"}};
  for (int batch = 0; batch < 6; ++batch) {
    std::string bytes = cifar_record(batch + 1);
    bytes.resize(kBatchBytes);
    members.emplace_back(std::string("cifar-10-batches-bin/") + kBatches[batch], std::move(bytes));
  }
  return members;
}

TEST(Cifar10, ReadsTheArchiveWithoutUnpackingIt) {
  const TempDirectory directory;
  const fs::path archive = directory.path() / "cifar-10-binary.tar.gz";
  testing::write_tar_gz(archive, archive_members());
  EXPECT_TRUE(data::kCifar10Files.are_in(directory.path()));
  expect_batches(data::read_cifar10(directory.path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 1);

  // Every truncation is refused.
  const std::uintmax_t whole = fs::file_size(archive);
  for (const std::uintmax_t size :
       {whole - 1, whole / 3, std::uintmax_t{700}, std::uintmax_t{11}, std::uintmax_t{0}}) {
    fs::resize_file(archive, size);
    EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
                HasSubstr(archive.string()))
        << size << " of " << whole;
  }
}

TEST(Cifar10, NamesThePageThatConvertsFilesForPython) {
  const TempDirectory directory;
  directory.write("cifar-10-batches-py/data_batch_1", "");
  EXPECT_FALSE(data::kCifar10Files.are_in(directory.path()));
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              HasSubstr("docs/from-pytorch.md converts cifar-10-batches-py/"));
}

TEST(Cifar10, RefusesOtherArchives) {
  const TempDirectory directory;
  const auto refusal = [&] { return message_of<DataError>([&] { data::read_cifar10(directory.path()); }); };
  const fs::path archive = directory.write("cifar-10-binary.tar.gz", "not an archive");
  EXPECT_THAT(refusal(), HasSubstr(archive.string()));
  testing::write_tar_gz(archive, {{"hello.txt", "hello"}});
  EXPECT_THAT(refusal(), HasSubstr("data_batch_1.bin is missing"));
  testing::write_tar_gz(archive, {{"bomb", std::string(40 << 20, '\0')}});
  EXPECT_THAT(refusal(), HasSubstr("member bomb of 41943040 bytes, expected at most 30730000"));
  testing::write_tar_gz(archive, {{"x/data_batch_1.bin", "short"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("data_batch_1.bin: 5 bytes"), HasSubstr("30730000")));
}

TEST(Cifar10, RefusesBatchesOfWrongSize) {
  const TempDirectory directory;
  write_batches(directory, "cifar-10-batches-bin");
  const fs::path first = directory.path() / "cifar-10-batches-bin" / "data_batch_1.bin";
  for (const std::uintmax_t size :
       {kBatchBytes - 1, kBatchBytes + 1, kBatchBytes - 3073, std::uintmax_t{0}}) {
    fs::resize_file(first, size);
    EXPECT_THAT(
        message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
        AllOf(HasSubstr(first.string()), HasSubstr(std::to_string(size) + " bytes"), HasSubstr("30730000")));
  }
  fs::remove(first);
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              HasSubstr("data_batch_1.bin is missing"));
}

TEST(Cifar10, RefusesLabelsOutsideTheClasses) {
  const data::ImageSet set{Tensor::zeros({2, 32, 32, 3}, DType::u8, Device::cpu()),
                           Tensor::zeros({2}, DType::i32, Device::cpu())};
  const std::string message = message_of<DataError>(
      [&] { data::parse_cifar_batch(cifar_record(9) + cifar_record(10), "a.bin", 0, 2, set); });
  EXPECT_THAT(message, HasSubstr("a.bin: label 10 of record 1, expected 0 to 9"));
}

TEST(Cifar10, RefusesAWrongNumberOfClassNames) {
  const TempDirectory directory;
  write_batches(directory, "");
  directory.write("batches.meta.txt", "cat\ndog\n");
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              AllOf(HasSubstr("batches.meta.txt"), HasSubstr("2 class names, expected 10")));
}

TEST(Cifar10, ReadsClassDirectories) {
  const TempDirectory directory;
  const std::vector<std::string> classes = {"airplane", "automobile", "bird",  "cat",  "deer",
                                            "dog",      "frog",       "horse", "ship", "truck"};
  for (const char* split : {"train", "test"})
    for (std::size_t label = 0; label < classes.size(); ++label)
      directory.write(fs::path("cifar10") / split / classes[label] / "0001.jpg",
                      testing::jpeg(Picture::plain(32, 32, 3, static_cast<std::uint8_t>(20 * label))));
  EXPECT_TRUE(data::kCifar10Files.are_in(directory.path()));
  const data::DataSet data = data::read_cifar10(directory.path());
  EXPECT_EQ(data.name, "cifar10");
  EXPECT_EQ(data.classes, classes);
  EXPECT_EQ(data.image_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(data.note, "CIFAR-10 (JPEG) from " + (directory.path() / "cifar10").string());
  // A constant image has one coefficient per block. Its error is at most half the quantization step (2 at
  // quality 95), divided by 8.
  const auto pixels = data.test.images.to_vector<std::uint8_t>();
  for (std::size_t label = 0; label < classes.size(); ++label)
    EXPECT_NEAR(pixels[label * 32 * 32 * 3], 20.0 * static_cast<double>(label), 1) << classes[label];

  fs::remove_all(directory.path() / "cifar10" / "train" / "truck");
  fs::remove_all(directory.path() / "cifar10" / "test" / "truck");
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              HasSubstr("9 class directories"));
}

/// Writes the two files of CIFAR-100 with their official sizes, whose first records have the fine labels 98 and 99, and
/// coarse labels that no class has.
void write_cifar100(const TempDirectory& directory, const fs::path& under) {
  for (const bool is_test : {false, true})
    fs::resize_file(
        directory.write(under / (is_test ? "test.bin" : "train.bin"), '\x7b' + cifar_record(98 + is_test)),
        3074 * (is_test ? 10000 : 50000));
}

std::string hundred_names() {
  std::string names;
  for (int i = 0; i < 100; ++i) names += "class" + std::to_string(i) + "\n";
  return names;
}

void expect_cifar100(const data::DataSet& data) {
  EXPECT_EQ(data.name, "cifar100");
  ASSERT_EQ(data.classes.size(), 100u);
  EXPECT_EQ(data.classes[99], "class99");
  ASSERT_EQ(data.train.images.shape(), (Shape{50000, 32, 32, 3}));
  ASSERT_EQ(data.test.images.shape(), (Shape{10000, 32, 32, 3}));
  expect_first_record(data.train, 0, 98);
  expect_first_record(data.test, 0, 99);
}

TEST(Cifar100, ReadsExtractedFiles) {
  for (const fs::path& under :
       {fs::path("cifar-100-binary"), fs::path("cifar100/cifar-100-binary"), fs::path("")}) {
    const TempDirectory directory;
    write_cifar100(directory, under);
    EXPECT_FALSE(data::kCifar100Files.are_in(directory.path())) << "there are no names of classes";
    directory.write(under / "fine_label_names.txt", hundred_names());
    EXPECT_TRUE(data::kCifar100Files.are_in(directory.path()));
    EXPECT_FALSE(data::kCifar10Files.are_in(directory.path()));
    expect_cifar100(data::read_cifar100(directory.path()));
  }
}

TEST(Cifar100, ReadsTheArchive) {
  const TempDirectory directory, files;
  write_cifar100(files, "");
  const auto member = [&](const std::string& name) {
    return std::pair("cifar-100-binary/" + name, testing::contents_of(files.path() / name));
  };
  const fs::path archive = directory.path() / "cifar-100-binary.tar.gz";
  testing::write_tar_gz(archive,
                        {{"cifar-100-binary/fine_label_names.txt", hundred_names()}, member("test.bin")});
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar100(directory.path()); }),
              HasSubstr("train.bin is missing"));
  testing::write_tar_gz(archive, {{"cifar-100-binary/fine_label_names.txt", hundred_names()},
                                  {"cifar-100-binary/coarse_label_names.txt", "fish\n"},
                                  member("train.bin"),
                                  member("test.bin")});
  expect_cifar100(data::read_cifar100(directory.path()));
}

TEST(Cifar100, RefusesLabelsAndSizesOfOtherFiles) {
  const data::ImageSet set{Tensor::zeros({1, 32, 32, 3}, DType::u8, Device::cpu()),
                           Tensor::zeros({1}, DType::i32, Device::cpu())};
  const auto refusal = [&](const std::string& bytes) {
    return message_of<DataError>(
        [&] { data::parse_cifar_batch(bytes, "a.bin", 0, 1, set, data::kCifar100Labels); });
  };
  EXPECT_THAT(refusal('\0' + cifar_record(100)), HasSubstr("a.bin: label 100 of record 0, expected 0 to 99"));
  EXPECT_THAT(refusal(cifar_record(1)), HasSubstr("a.bin: 3073 bytes, expected 3074"));
  const TempDirectory directory;
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar100(directory.path()); }),
              AllOf(HasSubstr("no CIFAR-100 here"), HasSubstr("cifar-100-binary.tar.gz")));
}

TEST(Cifar10, ReportsTheExpectedFiles) {
  const TempDirectory directory;
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              AllOf(HasSubstr(directory.path().string()), HasSubstr("cifar-10-binary.tar.gz")));
}

TEST(ReadOptions, RefusesInvalidOptions) {
  const TempDirectory directory;
  EXPECT_THROW(data::read_cifar10(directory.path(), {.image_size = -1}), UsageError);
  EXPECT_THROW(data::read_mnist(directory.path(), {.workers = -1}), UsageError);
  EXPECT_THROW(data::read_image_folder(directory.path(), {.test_fraction = 1.0}), UsageError);
  EXPECT_THROW(data::read_image_folder(directory.path(), {.test_fraction = 0.0}), UsageError);
}

// The table of data sets: lookup by name, and consistency of its rows with the readers.

TEST(DatasetRegistry, FindsEveryEntryByItsName) {
  std::set<std::string_view> names;
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    EXPECT_EQ(&data::find_dataset(entry.name), &entry);
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is in the table twice";
    EXPECT_NE(entry.read, nullptr) << entry.name;
  }
  EXPECT_EQ(data::dataset_names().size(), names.size());
}

TEST(DatasetRegistry, RefusesAnUnknownNameWithASuggestion) {
  const std::string message = message_of<UsageError>([] { data::find_dataset("cifar"); });
  EXPECT_THAT(message, AllOf(HasSubstr("unknown data set 'cifar'"), HasSubstr("did you mean 'cifar10'?"),
                             HasSubstr("cifar10, cifar100, mnist, fashion-mnist, folder, shards, shapes")));
  EXPECT_THROW(data::find_dataset(""), UsageError);
}

TEST(DatasetRegistry, AddsADataSetWithANewName) {
  const auto read = [](const std::filesystem::path&, const data::ReadOptions&) { return data::DataSet{}; };
  data::add({.name = "mine",
             .source = data::DatasetSource::user_directory,
             .read = read,
             .image_shape = {8, 8, 1},
             .classes = 2});
  EXPECT_EQ(data::find_dataset("mine").classes, 2);
  EXPECT_EQ(data::dataset_names().back(), "mine");
  EXPECT_EQ(message_of<UsageError>([&] { data::add({.name = "mine", .read = read}); }),
            "data set 'mine': found another one with this name, expected a new one");
  EXPECT_EQ(message_of<UsageError>([&] { data::add({.name = "empty"}); }),
            "data set 'empty': found no name or no function that reads it, expected both");
  EXPECT_EQ(message_of<UsageError>(
                [&] { data::add({.name = "files", .source = data::DatasetSource::official, .read = read}); }),
            "data set 'files': expected a list of files exactly if the source is official");
}

TEST(DatasetRegistry, OfficialDataSetsAreRecognizedByTheirFirstDownload) {
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    EXPECT_EQ(entry.files != nullptr, entry.source == data::DatasetSource::official) << entry.name;
    if (entry.files == nullptr) continue;
    const testing::TempDirectory directory;
    EXPECT_FALSE(entry.files->are_in(directory.path())) << entry.name;
    directory.write(entry.files->official().front().front().name, "");
    EXPECT_TRUE(entry.files->are_in(directory.path())) << entry.name;
    EXPECT_FALSE(entry.files->expected().empty()) << entry.name;
  }
}

TEST(DatasetRegistry, GeneratedDataSetsHaveTheShapeOfTheirEntry) {
  for (const data::DatasetEntry& entry : data::all_datasets()) {
    if (entry.source != data::DatasetSource::generated) continue;
    const data::DataSet data = entry.read({}, {.seed = 3});
    EXPECT_EQ(data.name, entry.name);
    EXPECT_EQ(data.image_shape(), Shape(entry.image_shape));
    EXPECT_EQ(data.classes.size(), static_cast<std::size_t>(entry.classes));
    EXPECT_EQ(entry.read({}, {.image_size = 16, .seed = 3}).image_shape(), Shape({16, 16, 3}));
  }
}

}  // namespace

}  // namespace convoy
