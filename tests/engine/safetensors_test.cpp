#include "convoy/engine/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kSample = testing::source_path("tests/reference/sample.safetensors");

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

struct ReadResult {
  std::string message;     // the error; "" if the file was read
  double cpu_seconds = 0;  // of the reader, independent of the load of the machine
};

ReadResult try_to_read(const std::string& bytes) {
  const testing::TempDirectory directory(testing::TempDirectory::in_memory());
  const auto path = directory.write("bad.safetensors", bytes);
  ReadResult result;
  const std::clock_t begin = std::clock();
  try {
    io::read_safetensors(path, Device::cpu());
  } catch (const CheckpointError& error) {
    result.message = error.what();
    EXPECT_THAT(result.message, HasSubstr("bad.safetensors: "));
    EXPECT_THAT(result.message, Not(HasSubstr("\n")));
  }
  result.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return result;
}

std::string read_error(const std::string& bytes) { return try_to_read(bytes).message; }

const Tensor& tensor_named(const io::SafetensorsFile& file, const std::string& name) {
  for (const io::NamedTensor& named : file.tensors)
    if (named.name == name) return named.tensor;
  throw std::runtime_error("no tensor " + name);
}

template <class T>
std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values;
  for (const T value : tensor.to_vector<T>()) values.push_back(static_cast<float>(value));
  return values;
}

TEST(Safetensors, ReadsAFileWrittenByPython) {
  const io::SafetensorsFile file = io::read_safetensors(kSample, Device::cpu());
  EXPECT_EQ(file.tensors.size(), 8u);
  EXPECT_EQ(file.metadata.at("format"), "pt");
  EXPECT_EQ(file.metadata.at("note"), "ümlaut \"quoted\"");

  const Tensor& conv = tensor_named(file, "conv.weight");
  EXPECT_EQ(conv.shape(), (Shape{2, 3, 2, 1}));
  EXPECT_THAT(conv.to_vector<float>(), ElementsAre(-1, -.75, -.5, -.25, 0, .25, .5, .75, 1, 1.25, 1.5, 1.75));
  EXPECT_THAT(tensor_named(file, "double").to_vector<double>(), ElementsAre(1.0 / 3, -2e300));
  EXPECT_THAT(floats<float16>(tensor_named(file, "half")), ElementsAre(1.5f, -65504.0f, 0x1p-24f));
  EXPECT_THAT(floats<bfloat16>(tensor_named(file, "brain")),
              ElementsAre(3.140625f, static_cast<float>(bfloat16(-1e38f))));
  EXPECT_THAT(tensor_named(file, "index").to_vector<std::int32_t>(), ElementsAre(-7, 2147483647));
  EXPECT_THAT(tensor_named(file, "bytes").to_vector<std::uint8_t>(), ElementsAre(0, 127, 255));
  EXPECT_EQ(tensor_named(file, "empty").shape(), (Shape{0, 5}));

  const Tensor& counter = tensor_named(file, "bn.num_batches_tracked");  // I64 in the file
  EXPECT_EQ(counter.shape(), Shape{});
  EXPECT_THAT(counter.to_vector<std::int32_t>(), ElementsAre(1234));
}

TEST(Safetensors, RoundTripsEveryElementTypeBitForBit) {
  const DeviceContext cpu = Device::cpu();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<io::NamedTensor> tensors{
      {"bytes", Tensor::from(std::vector<std::uint8_t>{1, 2, 255}, {3}, cpu)},
      {"wide", Tensor::from(std::vector<double>{-0.0, 5e-324, 1e308}, {3, 1}, cpu)},
      {"scalar", Tensor::from(std::vector<float>{nan}, {}, cpu)},
      {"half", Tensor::from(std::vector<float16>{float16(1e-7f), float16(3)}, {2}, cpu)},
      {"brain", Tensor::from(std::vector<bfloat16>{bfloat16(nan), bfloat16(3)}, {1, 2}, cpu)},
      {"index", Tensor::from(std::vector<std::int32_t>{-2147483647 - 1}, {1}, cpu)},
      {"six", Tensor::zeros({1, 1, 2, 1, 1, 1}, DType::f32, cpu)},
      {"none", Tensor::empty({3, 0}, DType::f32, cpu)}};
  const testing::TempDirectory directory;
  const std::string bytes = io::encode_safetensors(tensors, {{"key", "a \"value\"\n"}});
  const io::SafetensorsFile file = io::read_safetensors(directory.write("all.safetensors", bytes), cpu);

  EXPECT_THAT(file.metadata, ElementsAre(std::pair<const std::string, std::string>("key", "a \"value\"\n")));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const io::NamedTensor& expected : tensors) {
    SCOPED_TRACE(expected.name);
    const Tensor& found = tensor_named(file, expected.name);
    ASSERT_EQ(found.shape(), expected.tensor.shape());
    ASSERT_EQ(found.dtype(), expected.tensor.dtype());
    if (found.numel() == 0) continue;
    EXPECT_EQ(std::memcmp(found.view().data, expected.tensor.view().data, found.bytes()), 0);
  }
  EXPECT_EQ(io::encode_safetensors(file.tensors, file.metadata), bytes);
}

TEST(Safetensors, WritesAndHashesWithoutCopying) {
  const DeviceContext cpu = Device::cpu();
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3}, {3}, cpu);
  const std::vector<io::NamedTensor> tensors{{"a", tensor}, {"none", Tensor::empty({0}, DType::f32, cpu)}};
  const io::SafetensorsLayout layout = io::lay_out_safetensors(tensors);
  const std::vector<std::string_view> pieces = layout.pieces();
  ASSERT_EQ(pieces.size(), 2u) << "the header and the non-empty tensor";
  EXPECT_EQ(static_cast<const void*>(pieces[1].data()), tensor.view().data) << "no copy";
  const std::string bytes = io::encode_safetensors(tensors);
  EXPECT_EQ(layout.size(), bytes.size());
  EXPECT_EQ(io::hash_bytes(pieces), io::hash_bytes(bytes));
  const testing::TempDirectory directory;
  io::write_file_durably(directory.path() / "file", pieces);
  EXPECT_EQ(io::read_text_file(directory.path() / "file", 1000), bytes);
  EXPECT_EQ(io::hash_file(directory.path() / "file"), io::hash_bytes(bytes));
}

TEST(Safetensors, PadsTheHeaderToAlignTheData) {
  for (int length = 1; length <= 9; ++length) {
    const std::string bytes = io::encode_safetensors({{std::string(static_cast<std::size_t>(length), 'x'),
                                                       Tensor::zeros({1}, DType::f64, Device::cpu())}});
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    EXPECT_EQ(header % 8, 0u);
    EXPECT_EQ(bytes.size(), 8 + header + 8);
  }
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  const testing::TempDirectory directory;
  const auto path = directory.write("none.safetensors", io::encode_safetensors({}));
  EXPECT_TRUE(io::read_safetensors(path, Device::cpu()).tensors.empty());
}

TEST(Safetensors, RejectsInvalidNamesWhenWriting) {
  const Tensor tensor = Tensor::zeros({1}, DType::f32, Device::cpu());
  EXPECT_THROW(io::encode_safetensors({{"a", tensor}, {"a", tensor}}), UsageError);
  EXPECT_THROW(io::encode_safetensors({{"__metadata__", tensor}}), UsageError);
  EXPECT_THROW(io::encode_safetensors({{"\xff", tensor}}), UsageError);
}

/// An invalid header and a part of the expected message.
struct InvalidHeader {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  const char* message;
};

void PrintTo(const InvalidHeader& header, std::ostream* out) { *out << header.name; }

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

class SafetensorsInvalidHeader : public ::testing::TestWithParam<InvalidHeader> {};

TEST_P(SafetensorsInvalidHeader, IsRejectedQuicklyWithTheReason) {
  const ReadResult result = try_to_read(file_of(GetParam().header, GetParam().data_bytes));
  EXPECT_THAT(result.message, HasSubstr(GetParam().message));
  EXPECT_LT(result.message.size(), 400u);
  EXPECT_LT(result.cpu_seconds, 1);  // takes milliseconds without a sanitizer and on an idle core
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsInvalidHeader,
    ::testing::Values(
        InvalidHeader{"Empty", "", 0, "does not begin"},
        InvalidHeader{"LeadingSpace", " {}", 0, "does not begin"},
        InvalidHeader{"NotAnObject", "[]", 0, "does not begin"},
        InvalidHeader{"NotJson", "{\"a\":", 0, "not JSON"},
        InvalidHeader{"TwoObjects", "{}{}", 0, "not JSON"},
        InvalidHeader{"InvalidUtf8", "{\"\xff\":{}}", 0, "not JSON"},
        InvalidHeader{"NulAndGarbage", std::string("{}\0garbage", 10), 0, "byte 2 of the header is NUL"},
        InvalidHeader{"NulPadding", std::string("{} \0\0\0\0\0", 8), 0, "byte 3 of the header is NUL"},
        InvalidHeader{"NoData", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 0,
                      "0 bytes of data"},
        InvalidHeader{"DataLeftOver", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
                      "9 bytes of data"},
        InvalidHeader{"OnlyData", "{}", 1, "1 bytes of data"},
        InvalidHeader{
            "Overlap",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
            12, "an overlap"},
        InvalidHeader{
            "SameBytesTwice",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
            8, "an overlap"},
        InvalidHeader{
            "Hole",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[9,17]}})",
            17, "a hole"},
        InvalidHeader{"HoleAtTheStart", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[1,9]}})", 9,
                      "a hole"},
        InvalidHeader{"OffsetsReversed", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", 8,
                      "data_offsets"},
        InvalidHeader{"OffsetsNegative", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}})", 8,
                      "negative"},
        InvalidHeader{"OffsetsFractional", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8.0]}})", 8,
                      "integer"},
        InvalidHeader{"OffsetsHuge",
                      R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]}})", 8,
                      "integer"},
        InvalidHeader{"OffsetsThree", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})", 8,
                      "more than 2"},
        InvalidHeader{"OffsetsOne", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8]}})", 8,
                      "two numbers"},
        InvalidHeader{"ShapeAndOffsetsDisagree", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                      8, "expected 12 bytes"},
        InvalidHeader{"ShapeOverflows64",
                      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                      "overflows"},
        InvalidHeader{"ShapeWrapsToASmallNumber",
                      R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})", 8,
                      "overflows"},
        InvalidHeader{"ShapeBeyondInt64",
                      R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8,
                      "too large"},
        InvalidHeader{"ShapeNegative", R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", 8,
                      "negative"},
        InvalidHeader{"ShapeOfSeven", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
                      1, "tensor \"a\": has more than 6 axes, expected at most the 6 that a Tensor"},
        InvalidHeader{"ShapeNested", R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", 8,
                      "an array"},
        InvalidHeader{"UnknownType", R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8,
                      "\"F8_E4M3\" is not supported"},
        InvalidHeader{"TypeIsANumber", R"({"a":{"dtype":4,"shape":[8],"data_offsets":[0,8]}})", 8,
                      "a number"},
        InvalidHeader{"MissingType", R"({"a":{"shape":[8],"data_offsets":[0,8]}})", 8, "expected dtype"},
        InvalidHeader{"MissingShape", R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", 8, "expected dtype"},
        InvalidHeader{"MissingOffsets", R"({"a":{"dtype":"U8","shape":[8]}})", 8, "expected dtype"},
        InvalidHeader{"UnknownKey", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})", 8,
                      "unknown key"},
        InvalidHeader{
            "SameTensorTwice",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
            16, "occurs twice"},
        InvalidHeader{"SameKeyTwice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                      8, "occurs twice"},
        InvalidHeader{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"},
        InvalidHeader{"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "occurs twice"},
        InvalidHeader{"MetadataNumber", R"({"__metadata__":{"a":1}})", 0, "a number"},
        InvalidHeader{"MetadataNested", R"({"__metadata__":{"a":{}}})", 0, "an object"},
        InvalidHeader{"MetadataString", R"({"__metadata__":"a"})", 0, "a string"},
        InvalidHeader{"MetadataNullInside", R"({"__metadata__":{"a":null}})", 0, "null"},
        InvalidHeader{"NullTensor", R"({"a":null})", 0, "null"},
        InvalidHeader{"BooleanTensor", R"({"a":true})", 0, "a boolean"},
        InvalidHeader{"DeepObjects", repeated("{\"shape\":", 1'000'000), 0, "an object"},
        InvalidHeader{"DeepArrays", "{\"a\":{\"shape\":" + repeated("[", 1'000'000), 0, "an array"},
        InvalidHeader{"LongName", "{\"" + repeated("n", 1'000'000) + "\":null}", 0, "null"},
        InvalidHeader{"ControlCharactersInAName", R"({"a\nb\u0000":null})", 0, "\"a?b?\""},
        InvalidHeader{"LongNumber", "{\"a\":{\"shape\":[" + repeated("9", 1'000'000) + "]}}", 0, "not JSON"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Safetensors, RejectsInvalidHeaderLengths) {
  EXPECT_THAT(read_error(""), HasSubstr("too short"));
  EXPECT_THAT(read_error(std::string(7, '\0')), HasSubstr("too short"));
  EXPECT_THAT(read_error(length_prefix(0)), HasSubstr("does not begin"));
  EXPECT_THAT(read_error(length_prefix(3) + "{}"), HasSubstr("header of 3 bytes"));
  EXPECT_THAT(read_error(length_prefix(~0ull) + "{}"), HasSubstr("header of 18446744073709551615 bytes"));
  EXPECT_THAT(read_error(length_prefix(~0ull - 7) + "{}"),
              HasSubstr("header of"));  // overflows if 8 is added
}

TEST(Safetensors, RejectsATooLongHeaderWithoutReadingIt) {
  const testing::TempDirectory directory;
  const auto path = directory.write("long.safetensors", length_prefix(io::kMaxSafetensorsHeader + 1));
  std::filesystem::resize_file(
      path,
      io::kMaxSafetensorsHeader + 1000);  // sparse: the header length is within the file
  EXPECT_THAT(testing::message_of<CheckpointError>([&] { io::read_safetensors(path, Device::cpu()); }),
              HasSubstr("header of 100000001 bytes"));
}

TEST(Safetensors, RejectsI64ValuesThatDoNotFitI32) {
  const std::string header = R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  EXPECT_EQ(read_error(length_prefix(header.size()) + header + length_prefix(2147483647)), "");
  EXPECT_THAT(read_error(length_prefix(header.size()) + header + length_prefix(2147483648)),
              HasSubstr("\"n\": 2147483648 does not fit"));
}

TEST(Safetensors, RejectsMissingFilesAndDirectories) {
  const testing::TempDirectory directory;
  EXPECT_THROW(io::read_safetensors(directory.path() / "absent", Device::cpu()), CheckpointError);
  EXPECT_THROW(io::read_safetensors(directory.path(), Device::cpu()), CheckpointError);
}

// A file without a manifest has no checksum, so flipped data would be another valid file. Headers are
// checked.
TEST(Safetensors, RejectsEveryFlippedHeaderByteAndEveryTruncation) {
  const std::string good = testing::contents_of(kSample);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  int rejected = 0;
  for (std::size_t i = 0; i < 8 + header; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(~bad[i]);
    rejected += !read_error(bad).empty();
  }
  // Names and metadata are ASCII, whose complement is never valid UTF-8, so every change is rejected.
  EXPECT_EQ(rejected, static_cast<int>(8 + header));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(read_error(good.substr(0, length)), "") << length;
}

TEST(Safetensors, MapsTensorsThatOutliveTheReaderAndTheFile) {
  const testing::TempDirectory directory;
  const DeviceContext cpu = Device::cpu();
  const Tensor numbers = Tensor::from(std::vector<float>{1, 2, 3}, {3}, cpu);
  const Tensor bytes = Tensor::from(std::vector<std::uint8_t>{4, 5}, {2, 1}, cpu);
  for (const std::size_t alignment : {std::size_t{8}, std::size_t{64}, std::size_t{4096}}) {
    const io::SafetensorsLayout layout = io::lay_out_safetensors(
        {{"n", numbers}, {"b", bytes}, {"none", Tensor::empty({0}, DType::u8, cpu)}}, {}, alignment);
    EXPECT_EQ(layout.header.size() % alignment, 0u);
    const auto path = directory.path() / "mapped.safetensors";
    io::write_file_durably(path, layout.pieces());
    std::vector<Tensor> mapped;
    {
      const io::SafetensorsReader reader(path);
      for (std::size_t i = 0; i < 3; ++i) mapped.push_back(reader.map(i));
    }
    std::filesystem::remove(path);
    EXPECT_EQ(mapped[0].to_vector<float>(), numbers.to_vector<float>());
    EXPECT_EQ(mapped[1].shape(), bytes.shape());
    EXPECT_EQ(mapped[1].to_vector<std::uint8_t>(), bytes.to_vector<std::uint8_t>());
    EXPECT_EQ(mapped[2].numel(), 0);
  }
}

TEST(Safetensors, RefusesToMapValuesBetweenTheirMultiples) {
  const testing::TempDirectory directory;
  std::string header = R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize(header.size() + (8 - header.size() % 8) % 8 + 1, ' ');
  const io::SafetensorsReader reader(directory.write("odd.safetensors", file_of(header, 4)));
  EXPECT_THAT(testing::message_of<CheckpointError>([&] { reader.map(0); }),
              ::testing::AllOf(HasSubstr("odd.safetensors: tensor \"f\": F32 at byte "),
                               HasSubstr("expected a multiple of its size")));
  EXPECT_EQ(reader.read(0).item(), 0);
}

TEST(Safetensors, AcceptsNullMetadata) {
  EXPECT_EQ(try_to_read(file_of(R"({"__metadata__":null})", 0)).message, "");
}

TEST(Safetensors, NamesFilesOfOtherFormats) {
  for (const auto& [bytes, message] :
       {std::pair(
            std::string("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 44\n"),
            "a Git LFS pointer, expected the safetensors file that it stands for; fetch it: git lfs pull"),
        std::pair(std::string("lr = 0.1\n"), "a text file, expected safetensors"),
        std::pair(std::string("step_47\n"), "a text file, expected safetensors"),
        std::pair(std::string("a\n"), "a text file, expected safetensors"),
        std::pair("\x89HDF\r\n\x1a\n" + std::string(100, '\xff'),
                  "an HDF5 file (Keras), expected safetensors"),
        std::pair(std::string(100, '\xff'),
                  "not a whole safetensors file: header of 18446744073709551615 bytes")})
    EXPECT_THAT(try_to_read(bytes).message, HasSubstr(message));
}

TEST(Safetensors, NamesFilesOfPyTorchAndJson) {
  for (const std::string& start :
       {std::string("PK\3\4\0\0\x08\x08", 8), std::string("\x80\2\x8a\nl\xfc\x9c\x46", 8)})
    EXPECT_THAT(try_to_read(start + std::string(100, '\0')).message,
                ::testing::AllOf(
                    HasSubstr("a file of PyTorch (torch.save), expected safetensors; convert it: python3"),
                    HasSubstr("torch.load('"), HasSubstr("bad.safetensors')")));
  EXPECT_THAT(try_to_read("{\"train_batch_size\": 8}").message,
              HasSubstr("a JSON file, expected safetensors"));
  // A header of as many bytes as the start of a pickle says is no pickle.
  const std::string header = "{" + std::string(0x10280 - 2, ' ') + "}";
  EXPECT_EQ(try_to_read(file_of(header, 0)).message, "");
}

}  // namespace
}  // namespace convoy
