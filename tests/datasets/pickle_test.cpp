// Tests of CIFAR-10 for Python: the same data set as the binary files, and refusal of all other pickles.
#include "convoy/datasets/formats/parsers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "convoy/datasets/formats/readers.h"
#include "tests/datasets/pickled_batch.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::PickledBatch;
using testing::PickleText;
using testing::TempDirectory;

const std::vector<std::string> kNames = {"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};

/// Returns image `i` as its red, green and blue planes. Other images have other values.
std::string planes(int i) {
  std::string bytes;
  for (int c = 0; c < 3; ++c)
    for (int p = 0; p < 1024; ++p) bytes += static_cast<char>(p * (i % 7 + 1) + 50 * c + i);
  return bytes;
}

constexpr int kImages = 10000, kImageBytes = 3072;
/// Images that are not black. All others are holes in sparse files.
constexpr int kDrawn[] = {0, 1, 998, 999, 1000, 9999};

/// Returns the label of an image. Most are 0, so that the binary files are sparse as well.
int label_of(int batch, int i) { return i < 1500 || i == 9999 ? (7 * batch + i * i) % 10 : 0; }

/// Writes `text` at a position of a file.
void write_at(std::ofstream& file, std::size_t position, const std::string& text) {
  file.seekp(static_cast<std::streamoff>(position));
  file << text;
}

/// Writes the batch as a binary file and as a pickle.
void write_batch(const TempDirectory& directory, int batch) {
  const std::string name = batch == 5 ? "test_batch" : "data_batch_" + std::to_string(batch + 1);
  const fs::path records_file = directory.write("bin/" + name + ".bin", "");
  fs::resize_file(records_file, std::uintmax_t{kImages} * (1 + kImageBytes));
  std::ofstream records(records_file, std::ios::in | std::ios::binary);
  std::vector<int> labels;
  for (int i = 0; i < kImages; ++i) {
    labels.push_back(label_of(batch, i));
    if (labels.back() != 0)
      write_at(records, static_cast<std::size_t>(i) * (1 + kImageBytes),
               std::string(1, static_cast<char>(labels.back())));
  }
  const PickledBatch parts(labels, /*stores=*/batch % 2 == 0);
  std::ofstream pickle(directory.write("py/" + name, parts.before), std::ios::in | std::ios::binary);
  for (const int i : kDrawn) {
    const auto image = static_cast<std::size_t>(i);
    write_at(pickle, parts.before.size() + image * kImageBytes, planes(i + batch));
    write_at(records, image * (1 + kImageBytes) + 1, planes(i + batch));
  }
  write_at(pickle, parts.before.size() + std::size_t{kImages} * kImageBytes, parts.after);
}

void expect_equal(const data::ImageSet& found, const data::ImageSet& expected) {
  EXPECT_EQ(found.images.shape(), expected.images.shape());
  EXPECT_TRUE(found.images.to_vector<std::uint8_t>() == expected.images.to_vector<std::uint8_t>());
  EXPECT_EQ(found.labels.to_vector<std::int32_t>(), expected.labels.to_vector<std::int32_t>());
}

TEST(Cifar10ForPython, IsTheDataSetOfTheBinaryFiles) {
  const TempDirectory directory;
  for (int batch = 0; batch < 6; ++batch) write_batch(directory, batch);
  const data::DataSet expected = data::read_cifar10(directory.path() / "bin");
  ASSERT_EQ(expected.test.labels.rows(9999, 10000).item(), label_of(5, 9999));

  // The directory itself, and where torchvision puts it.
  const fs::path py = directory.path() / "py";
  for (const fs::path& place : {py, directory.path() / "data"}) {
    if (place != py) {
      fs::create_directories(place);
      fs::rename(py, place / "cifar-10-batches-py");
    }
    EXPECT_TRUE(data::kCifar10Files.are_in(place));
    const data::DataSet found = data::read_cifar10(place);
    EXPECT_EQ(found.classes, kNames);
    expect_equal(found.train, expected.train);
    expect_equal(found.test, expected.test);
  }
}

TEST(Cifar10ForPython, NamesAndMissingFilesAreThoseOfThePickles) {
  const TempDirectory directory;
  directory.write("cifar-10-batches-py/data_batch_1", "");
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              HasSubstr("cifar-10-batches-py: data_batch_2 is missing"));
  for (const char* name : {"data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"})
    directory.write(fs::path("cifar-10-batches-py") / name, "");
  EXPECT_THAT(message_of<DataError>([&] { data::read_cifar10(directory.path()); }),
              HasSubstr("data_batch_1: found 0 bytes up to the end of the file"));
  std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  EXPECT_EQ(data::parse_cifar_pickled_names(testing::pickled_names(names), "meta"), names);
  names.pop_back();
  EXPECT_THAT(
      message_of<DataError>([&] { data::parse_cifar_pickled_names(testing::pickled_names(names), "meta"); }),
      HasSubstr("meta: 9 class names, expected 10"));
}

TEST(Cifar100ForPython, ReadsTheFineLabelsOfTheTrainingSet) {
  const TempDirectory directory;
  const auto write = [&](const std::string& name, int images) {
    std::vector<int> labels;
    for (int i = 0; i < images; ++i) labels.push_back(i % 100);
    const PickledBatch parts(labels, /*stores=*/true, "fine_labels", "coarse_labels");
    std::ofstream file(directory.write("cifar-100-python/" + name, parts.before),
                       std::ios::in | std::ios::binary);
    write_at(file, parts.before.size(), planes(3));
    write_at(file, parts.before.size() + static_cast<std::size_t>(images) * kImageBytes, parts.after);
  };
  write("train", 50000);
  write("test", 10000);
  EXPECT_FALSE(data::kCifar100Files.are_in(directory.path())) << "there are no names of classes";
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("class" + std::to_string(i));
  directory.write("cifar-100-python/meta", testing::pickled_names(names, "fine_label_names"));
  EXPECT_TRUE(data::kCifar100Files.are_in(directory.path()));
  const data::DataSet data = data::read_cifar100(directory.path());
  EXPECT_EQ(data.classes, names);
  EXPECT_EQ(data.train.size(), 50000);
  EXPECT_EQ(data.train.labels.rows(49999, 50000).item(), 99);
  EXPECT_EQ(data.test.images.rows(0, 1).to_vector<std::uint8_t>()[1],
            static_cast<std::uint8_t>(planes(3)[1024]));
}

TEST(Cifar10ForPython, ReadsTheArchive) {
  const TempDirectory directory;
  const fs::path archive = directory.path() / "cifar-10-python.tar.gz";
  const PickledBatch parts(std::vector<int>(kImages, 3));
  const std::string batch =
      parts.before + std::string(std::size_t{kImages} * kImageBytes, '\5') + parts.after;
  std::vector<std::pair<std::string, std::string>> members = {
      {"cifar-10-batches-py/batches.meta", testing::pickled_names(kNames)}};
  for (int i = 0; i < 6; ++i)
    members.emplace_back(
        i == 5 ? "cifar-10-batches-py/test_batch" : "cifar-10-batches-py/data_batch_" + std::to_string(i + 1),
        batch);
  testing::write_tar_gz(archive, members);
  EXPECT_TRUE(data::kCifar10Files.are_in(directory.path()));
  const data::DataSet data = data::read_cifar10(directory.path());
  EXPECT_EQ(data.train.size(), 50000);
  EXPECT_EQ(data.test.labels.rows(0, 1).item(), 3);
  EXPECT_EQ(data.test.images.rows(9999, 10000).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(3072, 5));
}

/// A set for batches of two images.
data::ImageSet set_of_two() {
  return {Tensor::zeros({2, 32, 32, 3}, DType::u8, Device::cpu()),
          Tensor::zeros({2}, DType::i32, Device::cpu())};
}

std::string batch_of_two(const std::vector<int>& labels = {4, 9}, bool stores = true) {
  const PickledBatch parts(labels, stores);
  return parts.before + planes(1) + planes(2) + parts.after;
}

std::string refusal(const std::string& bytes) {
  const std::string message =
      message_of<DataError>([&] { data::parse_cifar_pickle(bytes, "bad", 0, 2, set_of_two()); });
  EXPECT_THAT(message, ::testing::StartsWith("bad: "));
  return message;
}

TEST(Pickle, ReadsABatchWithAndWithoutMemo) {
  for (const bool stores : {true, false}) {
    const data::ImageSet set = set_of_two();
    data::parse_cifar_pickle(batch_of_two({4, 9}, stores), "two", 0, 2, set);
    EXPECT_EQ(set.labels.to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 9}));
    EXPECT_EQ(set.images.rows(1, 2).to_vector<std::uint8_t>()[5], static_cast<std::uint8_t>(planes(2)[2049]))
        << "pixel 1, blue";
  }
}

TEST(Pickle, EveryTruncationIsRefused) {
  const std::string whole = batch_of_two();
  for (std::size_t size = 0; size < whole.size(); ++size)
    ASSERT_NE(refusal(whole.substr(0, size)), "") << size << " of " << whole.size();
}

TEST(Pickle, OversizedLengthsAreRefused) {
  const std::string whole = batch_of_two();
  const std::size_t length = whole.find("\x89T") + 2;
  for (const char* size : {"\xff\xff\xff\xff", "\xff\xff\xff\x7f", "\x01\x40\x00\x00"}) {
    std::string larger = whole;
    larger.replace(length, 4, std::string(size, 4));
    EXPECT_THAT(refusal(larger), HasSubstr("are announced"));
  }
  std::string smaller = whole;
  smaller.replace(length, 4, std::string("\x00\x10\x00\x00", 4));
  EXPECT_NE(refusal(smaller), "");
  // Other numbers of rows than the array has.
  const std::size_t rows = whole.find("(K\x01K\x02M");
  ASSERT_NE(rows, std::string::npos);
  const auto with_rows = [&](const char* number) { return std::string(whole).replace(rows + 3, 2, number); };
  EXPECT_THAT(refusal(with_rows("K\x03")), HasSubstr("an array of another shape than its 6144 bytes"));
  EXPECT_THAT(refusal(with_rows("J\xff\xff\xff\x7f")), HasSubstr("an array of another shape than"));
  EXPECT_THAT(refusal(with_rows("J\xff\xff\xff\xff")), HasSubstr("an array with an invalid size"));
  // In place of the sizes, each an opcode with its operand, and the opcode of a tuple of two.
  const std::string axes = std::string(whole).replace(rows + 3, 6, "(K\x01K\x01K\x01K\x01K\x01t");
  EXPECT_THAT(refusal(axes), HasSubstr("an array of 5 axes"));
}

TEST(Pickle, OtherOpcodesAreRefused) {
  const std::string allowed = "N\x88\x89KMJUT()\x85\x86\x87t]ae}suqrhjcRb.";
  int refused = 0;
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (allowed.find(static_cast<char>(opcode)) != std::string::npos) continue;
    ++refused;
    const std::string bytes = std::string("\x80\x02", 2) + static_cast<char>(opcode) + "K\x01.";
    EXPECT_THAT(refusal(bytes), HasSubstr(fmt::format("opcode 0x{:02x} at byte 2", opcode)));
  }
  EXPECT_EQ(refused, 256 - 28);
}

TEST(Pickle, CodeIsRefused) {
  // os.system("true"), and what Python's documentation warns of.
  EXPECT_THAT(refusal("\x80\x02"
                      "cos\nsystem\n(U\x04true"
                      "tR."),
              HasSubstr("a class or a function other"));
  EXPECT_THAT(refusal("\x80\x02"
                      "c__builtin__\neval\n."),
              HasSubstr("a class or a function other"));
  EXPECT_THAT(refusal("\x80\x02"
                      "cnumpy\nload\n."),
              HasSubstr("a class or a function other"));
  EXPECT_THAT(refusal("\x80\x02"
                      "c" +
                      std::string(1 << 20, 'a')),
              HasSubstr("a long name"));
}

TEST(Pickle, OperandsOfOtherTypesAreRefused) {
  const auto after_header = [](const std::string& opcodes) { return "\x80\x02" + opcodes; };
  EXPECT_THAT(refusal("\x80\x03}."), HasSubstr("expected a pickle of protocol 2"));
  EXPECT_THAT(refusal("(dp1\n."), HasSubstr("expected a pickle of protocol 2"));
  for (const char* opcodes : {".", "a", "R", "b", "\x87", "q\x01", "K\x01t", "s", "]a"})
    EXPECT_THAT(refusal(after_header(opcodes)), HasSubstr("lacks its")) << opcodes;
  EXPECT_THAT(refusal(after_header("h\x05")), HasSubstr("value 5, which is not stored"));
  EXPECT_THAT(refusal(after_header("K\x01K\x02"
                                   "a.")),
              HasSubstr("another operand than a list"));
  EXPECT_THAT(refusal(after_header("]K\x01K\x02s.")), HasSubstr("another operand than a dictionary"));
  EXPECT_THAT(refusal(after_header("}K\x01K\x02s.")), HasSubstr("a key that is not a text"));
  EXPECT_THAT(refusal(after_header("}(K\x01u.")), HasSubstr("a key without a value"));
  EXPECT_THAT(refusal(after_header("]]a.")), HasSubstr("neither a number nor a text"));
  EXPECT_THAT(refusal(after_header("}}.")), HasSubstr("values left over"));
  EXPECT_THAT(refusal(after_header("K\x01.")), HasSubstr("another operand than a dictionary"));
  // Values that contain themselves, and deep ones.
  EXPECT_THAT(refusal(after_header("]q\x01h\x01"
                                   "a.")),
              HasSubstr("neither a number nor a text"));
  EXPECT_THAT(refusal(after_header("}q\x01U\x01kh\x01s.")), HasSubstr("a nested dictionary"));
  EXPECT_THAT(refusal(after_header("}\x85.")), HasSubstr("a dictionary in a tuple"));
  EXPECT_THAT(refusal(after_header("K\x01" + std::string(100000, '\x85') + ".")), HasSubstr("nested 5 deep"));
  EXPECT_THAT(refusal(after_header(std::string(1100000, 'N') + ".")), HasSubstr("more than 1000000 opcodes"));
}

TEST(Pickle, AListThatIsNamedManyTimesIsNotCopied) {
  // One list of 50,000 numbers under 40,000 keys. Copies would take 48 GB.
  std::string bytes = "\x80\x02}(U\x02??]q\x01(";
  for (int i = 0; i < 50000; ++i) bytes += "K\x01";
  bytes += "e";
  for (int i = 0; i < 40000; ++i)
    bytes += std::string("U\x02") + static_cast<char>(i) + static_cast<char>(i >> 8) + "h\x01";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(refusal(bytes + "u."), HasSubstr("found no 'data'"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Pickle, BatchesWithOtherContentsAreRefused) {
  EXPECT_THAT(refusal(testing::pickled_names(kNames)), HasSubstr("found no 'data', expected an array"));
  EXPECT_THAT(refusal(batch_of_two({4, 10})), HasSubstr("label 10 of record 1, expected 0 to 9"));
  EXPECT_THAT(refusal(batch_of_two({-1, 3})), HasSubstr("label -1 of record 0, expected 0 to 9"));
  const PickledBatch three({1, 2, 3});
  EXPECT_THAT(refusal(three.before + planes(1) + planes(2) + planes(3) + three.after),
              HasSubstr("'data' of shape [3, 3072], expected [2, 3072]"));
  std::string other_type = batch_of_two();
  other_type.replace(other_type.find("u1"), 2, "f8");
  EXPECT_THAT(refusal(other_type), HasSubstr("an array of another type than u1"));
  std::string column_major = batch_of_two();
  column_major[column_major.find("\x89T")] = '\x88';
  EXPECT_THAT(refusal(column_major), HasSubstr("not of u1 in row-major order"));
}

}  // namespace
}  // namespace convoy
