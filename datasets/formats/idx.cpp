#include "convoy/datasets/formats/idx.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/gzip.h"
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

}  // namespace convoy::data
