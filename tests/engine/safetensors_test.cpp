#include "engine/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>

#include "engine/io/file.h"
#include "engine/io/safetensors_header.h"
#include "kernels/runtime/check.h"
#include "tests/support/temp_folder.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kSample =
    std::filesystem::path(CONVOY_SOURCE_DIR) / "tests/reference/sample.safetensors";

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\0');
}

struct Refusal {
  std::string message;     // "" where the file was read
  double cpu_seconds = 0;  // of the reader: what a loaded machine adds is not its fault
};

Refusal try_to_read(const std::string& bytes) {
  const testing::TempFolder folder(testing::TempFolder::in_memory());
  const auto path = folder.write("bad.safetensors", bytes);
  Refusal refusal;
  const std::clock_t begin = std::clock();
  try {
    read_safetensors(path, Device::cpu());
  } catch (const CheckpointError& error) {
    refusal.message = error.what();
    EXPECT_THAT(refusal.message, HasSubstr("bad.safetensors: "));
    EXPECT_THAT(refusal.message, Not(HasSubstr("\n")));
  }
  refusal.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return refusal;
}

std::string refusal(const std::string& bytes) { return try_to_read(bytes).message; }

const Tensor& tensor_named(const SafetensorsFile& file, const std::string& name) {
  for (const NamedTensor& named : file.tensors)
    if (named.name == name) return named.tensor;
  throw std::runtime_error("no tensor " + name);
}

template <class T>
std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values;
  for (const T value : tensor.to_vector<T>()) values.push_back(static_cast<float>(value));
  return values;
}

TEST(Safetensors, ReadsAFileThatPythonWrote) {
  const SafetensorsFile file = read_safetensors(kSample, Device::cpu());
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
  const Device cpu = Device::cpu();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<NamedTensor> tensors{
      {"bytes", Tensor::from(std::vector<std::uint8_t>{1, 2, 255}, {3}, cpu)},
      {"wide", Tensor::from(std::vector<double>{-0.0, 5e-324, 1e308}, {3, 1}, cpu)},
      {"scalar", Tensor::from(std::vector<float>{nan}, {}, cpu)},
      {"half", Tensor::from(std::vector<float16>{float16(1e-7f), float16(3)}, {2}, cpu)},
      {"brain", Tensor::from(std::vector<bfloat16>{bfloat16(nan), bfloat16(3)}, {1, 2}, cpu)},
      {"index", Tensor::from(std::vector<std::int32_t>{-2147483647 - 1}, {1}, cpu)},
      {"six", Tensor::zeros({1, 1, 2, 1, 1, 1}, DType::f32, cpu)},
      {"none", Tensor::empty({3, 0}, DType::f32, cpu)}};
  const testing::TempFolder folder;
  const std::string bytes = encode_safetensors(tensors, {{"key", "a \"value\"\n"}});
  const SafetensorsFile file = read_safetensors(folder.write("all.safetensors", bytes), cpu);

  EXPECT_THAT(file.metadata, ElementsAre(std::pair<const std::string, std::string>("key", "a \"value\"\n")));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const NamedTensor& expected : tensors) {
    SCOPED_TRACE(expected.name);
    const Tensor& found = tensor_named(file, expected.name);
    ASSERT_EQ(found.shape(), expected.tensor.shape());
    ASSERT_EQ(found.dtype(), expected.tensor.dtype());
    if (found.numel() == 0) continue;
    EXPECT_EQ(std::memcmp(found.view().data, expected.tensor.view().data, found.bytes()), 0);
  }
  EXPECT_EQ(encode_safetensors(file.tensors, file.metadata), bytes);
}

TEST(Safetensors, IsWrittenAndHashedFromWhereTensorsLie) {
  const Device cpu = Device::cpu();
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3}, {3}, cpu);
  const std::vector<NamedTensor> tensors{{"a", tensor}, {"none", Tensor::empty({0}, DType::f32, cpu)}};
  const SafetensorsLayout layout = lay_out_safetensors(tensors);
  const std::vector<std::string_view> pieces = layout.pieces();
  ASSERT_EQ(pieces.size(), 2u) << "the header, and what is not empty";
  EXPECT_EQ(static_cast<const void*>(pieces[1].data()), tensor.view().data) << "no copy";
  const std::string bytes = encode_safetensors(tensors);
  EXPECT_EQ(layout.size(), bytes.size());
  EXPECT_EQ(hash_bytes(pieces), hash_bytes(bytes));
  const testing::TempFolder folder;
  write_file_durably(folder.path() / "file", pieces);
  EXPECT_EQ(read_text_file(folder.path() / "file", 1000), bytes);
  EXPECT_EQ(hash_file(folder.path() / "file"), hash_bytes(bytes));
}

TEST(Safetensors, PadsTheHeaderSoThatDataAreAligned) {
  for (int length = 1; length <= 9; ++length) {
    const std::string bytes = encode_safetensors({{std::string(static_cast<std::size_t>(length), 'x'),
                                                   Tensor::zeros({1}, DType::f64, Device::cpu())}});
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    EXPECT_EQ(header % 8, 0u);
    EXPECT_EQ(bytes.size(), 8 + header + 8);
  }
}

TEST(Safetensors, AFileOfNoTensorsIsAFile) {
  const testing::TempFolder folder;
  const auto path = folder.write("none.safetensors", encode_safetensors({}));
  EXPECT_TRUE(read_safetensors(path, Device::cpu()).tensors.empty());
}

TEST(Safetensors, RefusesToWriteWhatNobodyCouldRead) {
  const Tensor tensor = Tensor::zeros({1}, DType::f32, Device::cpu());
  EXPECT_THROW(encode_safetensors({{"a", tensor}, {"a", tensor}}), UsageError);
  EXPECT_THROW(encode_safetensors({{"__metadata__", tensor}}), UsageError);
  EXPECT_THROW(encode_safetensors({{"\xff", tensor}}), UsageError);
}

struct Hostile {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  const char* says;
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

class SafetensorsHostile : public ::testing::TestWithParam<Hostile> {};

TEST_P(SafetensorsHostile, IsRefusedAtOnceWithTheReason) {
  const Refusal refused = try_to_read(file_of(GetParam().header, GetParam().data_bytes));
  EXPECT_THAT(refused.message, HasSubstr(GetParam().says));
  EXPECT_LT(refused.message.size(), 400u);
  EXPECT_LT(refused.cpu_seconds, 1);  // milliseconds; a sanitizer and a shared core take their part
}

INSTANTIATE_TEST_SUITE_P(
    Headers, SafetensorsHostile,
    ::testing::Values(
        Hostile{"Empty", "", 0, "does not begin"}, Hostile{"LeadingSpace", " {}", 0, "does not begin"},
        Hostile{"NotAnObject", "[]", 0, "does not begin"}, Hostile{"NotJson", "{\"a\":", 0, "not JSON"},
        Hostile{"TwoObjects", "{}{}", 0, "not JSON"}, Hostile{"InvalidUtf8", "{\"\xff\":{}}", 0, "not JSON"},
        Hostile{"NoData", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 0, "0 bytes of data"},
        Hostile{"DataLeftOver", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9,
                "9 bytes of data"},
        Hostile{"OnlyData", "{}", 1, "1 bytes of data"},
        Hostile{
            "Overlap",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
            12, "an overlap"},
        Hostile{
            "SameBytesTwice",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
            8, "an overlap"},
        Hostile{
            "Hole",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[9,17]}})",
            17, "a hole"},
        Hostile{"HoleAtTheStart", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[1,9]}})", 9, "a hole"},
        Hostile{"OffsetsReversed", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", 8,
                "data_offsets"},
        Hostile{"OffsetsNegative", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}})", 8,
                "negative"},
        Hostile{"OffsetsFractional", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8.0]}})", 8,
                "integer"},
        Hostile{"OffsetsHuge", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]}})",
                8, "integer"},
        Hostile{"OffsetsThree", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})", 8,
                "more than 2"},
        Hostile{"OffsetsOne", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8]}})", 8, "two numbers"},
        Hostile{"ShapeAndOffsetsDisagree", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                "expected 12 bytes"},
        Hostile{"ShapeOverflows64",
                R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                "overflows"},
        Hostile{"ShapeWrapsToASmallNumber",
                R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})", 8,
                "overflows"},
        Hostile{"ShapeBeyondInt64",
                R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8, "too large"},
        Hostile{"ShapeNegative", R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", 8, "negative"},
        Hostile{"ShapeOfSeven", R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
                "more than 6"},
        Hostile{"ShapeNested", R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", 8, "an array"},
        Hostile{"UnknownType", R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8,
                "\"F8_E4M3\" is not supported"},
        Hostile{"TypeIsANumber", R"({"a":{"dtype":4,"shape":[8],"data_offsets":[0,8]}})", 8, "a number"},
        Hostile{"MissingType", R"({"a":{"shape":[8],"data_offsets":[0,8]}})", 8, "expected dtype"},
        Hostile{"MissingShape", R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", 8, "expected dtype"},
        Hostile{"MissingOffsets", R"({"a":{"dtype":"U8","shape":[8]}})", 8, "expected dtype"},
        Hostile{"UnknownKey", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})", 8,
                "unknown key"},
        Hostile{
            "SameTensorTwice",
            R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
            16, "occurs twice"},
        Hostile{"SameKeyTwice", R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})", 8,
                "occurs twice"},
        Hostile{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"},
        Hostile{"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "occurs twice"},
        Hostile{"MetadataNumber", R"({"__metadata__":{"a":1}})", 0, "a number"},
        Hostile{"MetadataNested", R"({"__metadata__":{"a":{}}})", 0, "an object"},
        Hostile{"MetadataString", R"({"__metadata__":"a"})", 0, "a string"},
        Hostile{"NullTensor", R"({"a":null})", 0, "null"},
        Hostile{"BooleanTensor", R"({"a":true})", 0, "a boolean"},
        Hostile{"DeepObjects", repeated("{\"shape\":", 1'000'000), 0, "an object"},
        Hostile{"DeepArrays", "{\"a\":{\"shape\":" + repeated("[", 1'000'000), 0, "an array"},
        Hostile{"LongName", "{\"" + repeated("n", 1'000'000) + "\":null}", 0, "null"},
        Hostile{"ControlCharactersInAName", R"({"a\nb\u0000":null})", 0, "\"a?b?\""},
        Hostile{"LongNumber", "{\"a\":{\"shape\":[" + repeated("9", 1'000'000) + "]}}", 0, "not JSON"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Safetensors, RefusesLengthsThatTheFileDoesNotHave) {
  EXPECT_THAT(refusal(""), HasSubstr("too short"));
  EXPECT_THAT(refusal(std::string(7, '\0')), HasSubstr("too short"));
  EXPECT_THAT(refusal(length_prefix(0)), HasSubstr("does not begin"));
  EXPECT_THAT(refusal(length_prefix(3) + "{}"), HasSubstr("header of 3 bytes"));
  EXPECT_THAT(refusal(length_prefix(~0ull) + "{}"), HasSubstr("header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(length_prefix(~0ull - 7) + "{}"),
              HasSubstr("header of"));  // wraps where 8 is added to it
}

TEST(Safetensors, RefusesAHeaderThatIsTooLongWithoutReadingIt) {
  const testing::TempFolder folder;
  const auto path = folder.write("long.safetensors", length_prefix(kMaxSafetensorsHeader + 1));
  std::filesystem::resize_file(path, kMaxSafetensorsHeader + 1000);  // sparse: the length is within the file
  try {
    read_safetensors(path, Device::cpu());
    FAIL() << "was read";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("header of 100000001 bytes"));
  }
}

TEST(Safetensors, RefusesA64BitIntegerThatDoesNotFit) {
  const std::string header = R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  EXPECT_EQ(refusal(length_prefix(header.size()) + header + length_prefix(2147483647)), "");
  EXPECT_THAT(refusal(length_prefix(header.size()) + header + length_prefix(2147483648)),
              HasSubstr("\"n\": 2147483648 does not fit"));
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const testing::TempFolder folder;
  EXPECT_THROW(read_safetensors(folder.path() / "absent", Device::cpu()), CheckpointError);
  EXPECT_THROW(read_safetensors(folder.path(), Device::cpu()), CheckpointError);
}

// A file alone has no checksum, so a flipped name or value is another valid file; it must only never be
// misread.
TEST(Safetensors, SurvivesEveryFlippedByteOfAHeaderAndEveryTruncation) {
  const std::string good = bytes_of(kSample);
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  int refused = 0;
  for (std::size_t i = 0; i < 8 + header; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(~bad[i]);
    refused += !refusal(bad).empty();
  }
  // Names and metadata hold ASCII: its complement is never valid UTF-8, so nothing gets through.
  EXPECT_EQ(refused, static_cast<int>(8 + header));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(refusal(good.substr(0, length)), "") << length;
}

}  // namespace
}  // namespace convoy
