#include "convoy/kernels/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/view.h"
#include "tests/kernels/half_reference.h"

namespace convoy {
namespace {

template <class T>
class Half : public ::testing::Test {};
using HalfTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(Half, HalfTypes);

TYPED_TEST(Half, EveryPatternSurvivesConversionToFloat) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    TypeParam half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const TypeParam back(value);
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude > testing::kInfinityBits<TypeParam>) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << std::hex << bits;
      ASSERT_EQ(back.bits & 0x8000u, bits & 0x8000u) << "the sign of NaN, " << std::hex << bits;
      continue;
    }
    ASSERT_EQ(back.bits, bits) << std::hex << bits;
    if (magnitude == testing::kInfinityBits<TypeParam>) {
      ASSERT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(std::abs(value), testing::value_by_fields<TypeParam>(magnitude)) << std::hex << bits;
    }
    ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0);
  }
}

TYPED_TEST(Half, RoundsToNearestEven) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t bits = 0; bits < testing::kInfinityBits<TypeParam>; ++bits) {
    const double middle =
        (testing::value_by_fields<TypeParam>(bits) + testing::value_by_fields<TypeParam>(bits + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle) << "a float represents every tie";
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, kInfinity)}) {
      ASSERT_EQ(TypeParam(value).bits, testing::nearest_half<TypeParam>(value)) << std::hexfloat << value;
      ASSERT_EQ(TypeParam(-value).bits, testing::nearest_half<TypeParam>(-value)) << std::hexfloat << -value;
    }
  }
  EXPECT_EQ(TypeParam(kInfinity).bits, testing::kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, testing::kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits,
            testing::nearest_half<TypeParam>(std::numeric_limits<float>::denorm_min()));
}

TEST(DTypes, DispatchPassesTheMatchingType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8}) {
    dispatch(kAllTypes, dtype, [&](auto zero) {
      EXPECT_EQ(dtype_of<decltype(zero)>, dtype);
      EXPECT_EQ(sizeof zero, size_of(dtype)) << to_string(dtype);
    });
    EXPECT_EQ(is_floating(dtype), dtype != DType::i32 && dtype != DType::u8);
  }
}

TEST(DTypes, DispatchNamesTheDeviceAndTheTypesItAccepts) {
  constexpr ElementTypes<float, double> types{"the CPU"};
  EXPECT_EQ(dispatch(types, DType::f32, [](auto zero) { return sizeof zero; }), 4u);
  EXPECT_EQ(dispatch(types, DType::f64, [](auto zero) { return sizeof zero; }), 8u);
  try {
    dispatch(types, DType::bf16, [](auto) {});
    FAIL() << "bf16 was accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "the CPU computes in f32 and f64; found bf16");
  }
}

TEST(Shapes, CountAndPrint) {
  const Shape images{128, 32, 30, 3};
  EXPECT_EQ(images.numel(), 128 * 32 * 30 * 3);
  EXPECT_EQ(images.text(), "[128, 32, 30, 3]");
  EXPECT_EQ(images[-1], 3);
  EXPECT_EQ(images[2], 30);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().text(), "[]");
  EXPECT_EQ((Shape{4, 0, 3}).numel(), 0);
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), UsageError);
  EXPECT_THROW((Shape{2, -1}), UsageError);
}

TEST(Shapes, ViewsCountBytes) {
  EXPECT_EQ((View{nullptr, {3, 5}, DType::f64}).bytes(), 120u);
  EXPECT_EQ(ConstView(nullptr, {7}, DType::f16).bytes(), 14u);
  EXPECT_FALSE(GradView().wanted());
}

TEST(Errors, CarryTheirExitCodeAndText) {
  EXPECT_NO_THROW(check(true, "not formatted: {}", 1));
  try {
    check(2 > 3, "found {}, expected {}", 2, "more");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_STREQ(error.what(), "found 2, expected more");
  }
  EXPECT_THROW(fail<DataError>("{}: {} bytes", "a.bin", 3), DataError);
}

}  // namespace
}  // namespace convoy
