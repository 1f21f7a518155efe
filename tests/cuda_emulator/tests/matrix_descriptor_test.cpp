// Tests of matrix descriptors, against the layouts and rules of the PTX ISA ("Matrix Descriptor Format",
// "Canonical Layouts").
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/cuda_emulator/runtime/warpgroup.h"

namespace convoy::emulator {
namespace {

using ::testing::HasSubstr;

enum Mode : std::uint64_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

std::uint64_t bits_of(std::uint64_t start, std::uint64_t leading, std::uint64_t stride, Mode mode,
                      std::uint64_t base_offset = 0) {
  return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 |
         static_cast<std::uint64_t>(mode) << 62;
}

/// Swizzle<bits, 4, 3> of CuTe: combines bits 4, 5, … of an address with bits 7, 8, …
std::uint32_t swizzled(std::uint32_t address, unsigned bits) {
  return address ^ (address >> 3 & ((1u << bits) - 1) << 4);
}

/// Compares all elements of b [16, columns] with `offset(n, k)` in elements.
template <class F>
void expect_layout(std::uint64_t bits, bool is_transposed, unsigned columns, unsigned swizzle_bits,
                   F offset) {
  const MatrixDescriptor b(bits);
  EXPECT_EQ(b.error(), "");
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < 16; ++k)
      ASSERT_EQ(b.address(n, k, is_transposed), swizzled(b.start + 2 * offset(n, k), swizzle_bits))
          << "n " << n << ", k " << k;
}

TEST(MatrixDescriptor, KMajorLayoutsAreThoseOfPtx) {
  // ((8, m), (T, 2)) : ((1 T, SBO), (1, LBO)), ((2 T, SBO), (1, T)), ((4 T, …)), ((8 T, …)), with T = 8
  expect_layout(bits_of(2048, 1024, 128, kNone), false, 64, 0,
                [](unsigned n, unsigned k) { return n % 8 * 8 + n / 8 * 64 + k % 8 + k / 8 * 512; });
  expect_layout(bits_of(2048 + 256, 16, 256, k32), false, 64, 1,
                [](unsigned n, unsigned k) { return n % 8 * 16 + n / 8 * 128 + k; });
  expect_layout(bits_of(2048 + 512 + 32, 16, 1024, k64), false, 64, 2,  // the second 16 of k of a wider tile
                [](unsigned n, unsigned k) { return n % 8 * 32 + n / 8 * 512 + k; });
  expect_layout(bits_of(2048, 16, 1024, k128), false, 128, 3,
                [](unsigned n, unsigned k) { return n % 8 * 64 + n / 8 * 512 + k; });
}

TEST(MatrixDescriptor, TransposedLayoutsAreThoseOfPtx) {
  // The examples of the PTX ISA for bf16: without swizzle, 32 and 64 bytes; then 128 bytes.
  expect_layout(bits_of(2048, 256, 128, kNone), true, 16, 0,
                [](unsigned n, unsigned k) { return n % 8 + n / 8 * 64 + k % 8 * 8 + k / 8 * 128; });
  expect_layout(bits_of(2048, 256, 512, k32), true, 32, 1, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 2 * 8 + n / 16 * 128 + k % 8 * 16 + k / 8 * 256;
  });
  expect_layout(bits_of(2048, 512, 1024, k64), true, 64, 2, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 4 * 8 + n / 32 * 256 + k % 8 * 32 + k / 8 * 512;
  });
  expect_layout(bits_of(2048, 2048, 1024, k128), true, 128, 3, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 8 * 8 + n / 64 * 1024 + k % 8 * 64 + k / 8 * 512;
  });
}

TEST(MatrixDescriptor, ABaseOffsetMovesThePattern) {
  // A pattern that begins at 1024 + 3 * 128 has the chunks of row r at place c xor (r % 8) all the same.
  const MatrixDescriptor moved(bits_of(1024 + 384, 16, 1024, k128, 3)), usual(bits_of(1024, 16, 1024, k128));
  EXPECT_EQ(moved.error(), "");
  for (unsigned row = 0; row < 5; ++row)  // further rows are in the next 1,024 bytes
    EXPECT_EQ(moved.address(row, 8, false), usual.address(row, 8, false) + 384) << row;
}

TEST(MatrixDescriptor, ReportsWhatPtxForbids) {
  const auto error_of = [](std::uint64_t bits) { return MatrixDescriptor(bits).error(); };
  EXPECT_EQ(error_of(bits_of(1024, 16, 256, k32)), "");
  EXPECT_THAT(error_of(bits_of(1024 + 128, 16, 256, k32)), HasSubstr("at a multiple of 256 B"));
  EXPECT_THAT(error_of(bits_of(1024 + 32, 16, 256, k32)), HasSubstr("in the first row of a pattern"));
  EXPECT_EQ(error_of(bits_of(1024 + 128, 16, 256, k32, 1)), "");
  EXPECT_THAT(error_of(bits_of(1024 + 256, 16, 256, k32, 1)), HasSubstr("with base offset 1"));
  EXPECT_THAT(error_of(bits_of(1024 + 512, 16, 1024, k128)), HasSubstr("at a multiple of 1024 B"));
  EXPECT_THAT(error_of(bits_of(1024, 16, 128, k32)),
              HasSubstr("stride offset, 128 B, is not a multiple of 256 B"));
  EXPECT_THAT(error_of(bits_of(1024, 128, 256, kNone, 1)), HasSubstr("needs a swizzle mode"));
  EXPECT_THAT(error_of(bits_of(1024, 16, 256, k32) | std::uint64_t{1} << 52),
              HasSubstr("outside its fields"));
}

}  // namespace
}  // namespace convoy::emulator
