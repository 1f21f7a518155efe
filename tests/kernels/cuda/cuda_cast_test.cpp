// Compares cast(), fill() and assign() on the GPU with the CPU, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/elementwise.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/half_reference.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::value_of;

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8};

/// Expects equal values with equal signs. NaN may have any payload.
template <class T>
void expect_same(const Array<T>& found, const Array<T>& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e) {
    const double a = value_of(found[e]), b = value_of(expected[e]);
    if (std::isnan(a) && std::isnan(b)) continue;
    ASSERT_EQ(a, b) << "element " << e;
    ASSERT_EQ(std::signbit(a), std::signbit(b)) << "element " << e;
  }
}

template <class To, class From>
void check_cast(const DeviceContext& gpu, const Array<From>& from, std::size_t from_offset = 0,
                std::size_t to_offset = 0) {
  SCOPED_TRACE(std::string(to_string(dtype_of<From>)) + " at " + std::to_string(from_offset) + " to " +
               std::string(to_string(dtype_of<To>)) + " at " + std::to_string(to_offset) + ", " +
               from.shape().text());
  CpuStream cpu({.threads = 1});
  Array<To> expected(from.shape());
  kernels::cast(cpu, from.view(), expected.view());
  const DeviceArray<From> x(gpu, from, from_offset);
  const DeviceArray<To> y(gpu, from.shape(), to_offset);
  on(gpu.stream(), [&](auto& s) { kernels::cast(s, x.view(), y.view()); });
  expect_same(y.values(), expected);
}

/// Returns ties, the limits of each type and adjacent values, subnormal numbers and infinities, repeated.
/// Their number is odd, so that each value occurs at each position of a pack.
template <class T>
Array<T> values(std::int64_t n) {
  const double all[] = {0,
                        -0.0,
                        1,
                        -1,
                        0.5,
                        1.5,
                        2.5,
                        -0.5,
                        -1.5,
                        -2.5,
                        0.1,
                        1.0 / 3,
                        254.5,
                        255,
                        255.49,
                        255.5,
                        256,
                        -3,
                        300,
                        65504,
                        65519.996,
                        65520,
                        1e5,
                        6e-8,
                        2.98e-8,
                        1e-10,
                        1e-39,
                        1e-46,
                        16777217,
                        1e10,
                        -1e10,
                        2147483647.0,
                        -2147483648.0,
                        3e9,
                        3.39e38,
                        3.4028e38,
                        1e39,
                        1e300,
                        -65520,
                        1 - 1e-12,
                        1e-300,
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::numeric_limits<double>::quiet_NaN(),
                        1 + 0x1p-11 + 0x1p-40};
  static_assert(std::size(all) % 2 == 1);
  Array<double> doubles({n});
  for (std::size_t e = 0; e < doubles.size(); ++e) doubles[e] = all[e % std::size(all)];
  Array<T> out({n});
  CpuStream cpu({.threads = 1});
  kernels::cast(cpu, doubles.view(), out.view());
  return out;
}

class CudaCast : public testing::GpuTest {};

TEST_F(CudaCast, ConvertsEveryPairOfTypesLikeTheCpu) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for_each_order([&] {
    for (const DType from_type : kTypes) {
      dispatch(kAllTypes, from_type, [&](auto from_zero) {
        using From = decltype(from_zero);
        for (const std::int64_t n : {0, 1, 2, 15, 17, 33, 255, 1025, 8203}) {
          const Array<From> from = values<From>(n);
          for (const DType to_type : kTypes) {
            dispatch(kAllTypes, to_type, [&](auto to_zero) {
              using To = decltype(to_zero);
              check_cast<To>(gpu, from);
              if (n != 33 && n != 1025) return;
              check_cast<To>(gpu, from, 1, 0);
              check_cast<To>(gpu, from, 0, 1);
              check_cast<To>(gpu, from, 4, 4);
            });
          }
        }
      });
    }
  });
}

TEST_F(CudaCast, ConvertsInPlace) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const DType type : {DType::f32, DType::f16, DType::u8}) {
    dispatch(kAllTypes, type, [&](auto zero) {
      using T = decltype(zero);
      const Array<T> from = values<T>(8203);
      const DeviceArray<T> x(gpu, from);
      on(gpu.stream(), [&](auto& s) { kernels::cast(s, x.view(), x.view()); });
      expect_same(x.values(), from);
    });
  }
}

template <class Half>
class CudaCastToAndFromHalf : public testing::GpuTest {};
using HalfTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaCastToAndFromHalf, HalfTypes);

TYPED_TEST(CudaCastToAndFromHalf, ConvertsEveryBitPattern) {
  Array<TypeParam> values({0x10000});
  for (std::size_t bits = 0; bits < values.size(); ++bits)
    values[bits].bits = static_cast<std::uint16_t>(bits);
  check_cast<float>(DeviceContext::create_cuda(0), values);
}

TYPED_TEST(CudaCastToAndFromHalf, RoundsTiesAndAdjacentValuesLikeTheCpu) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::int64_t patterns = testing::kInfinityBits<TypeParam>;
  Array<double> doubles({6 * patterns});
  Array<float> floats({6 * patterns});
  for (std::int64_t bits = 0; bits < patterns; ++bits) {
    const auto magnitude = static_cast<std::uint32_t>(bits);
    const double middle = (testing::value_by_fields<TypeParam>(magnitude) +
                           testing::value_by_fields<TypeParam>(magnitude + 1)) /
                          2;
    const auto tie = static_cast<float>(middle);
    for (int k = 0; k < 6; ++k) {
      const auto e = static_cast<std::size_t>(6 * bits + k);
      const double sign = k % 2 == 0 ? 1 : -1;
      const double towards = k / 2 == 0 ? middle : k / 2 == 1 ? 0 : kInfinity;
      doubles[e] = sign * std::nextafter(middle, towards);
      floats[e] = static_cast<float>(sign) * std::nextafter(tie, static_cast<float>(towards));
    }
  }
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  check_cast<TypeParam>(gpu, doubles);
  check_cast<TypeParam>(gpu, floats);
}

TEST_F(CudaCast, FillsLikeTheCpu) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for_each_order([&] {
    for (const DType dtype : kTypes) {
      dispatch(kAllTypes, dtype, [&](auto zero) {
        using T = decltype(zero);
        for (const double value : {0.1, -7.0, 300.25}) {
          for (const std::int64_t n : {0, 1, 15, 33, 257, 8203}) {
            for (const std::size_t offset : {0, 1, 4}) {
              SCOPED_TRACE(std::string(to_string(dtype)) + " [" + std::to_string(n) + "] at " +
                           std::to_string(offset));
              CpuStream cpu({.threads = 1});
              Array<T> expected({n});
              kernels::fill(cpu, value, expected.view());
              const DeviceArray<T> y(gpu, {n}, offset);
              on(gpu.stream(), [&](auto& s) { kernels::fill(s, value, y.view()); });
              expect_same(y.values(), expected);
            }
          }
        }
      });
    }
  });
}

template <class T>
void check_assign(const DeviceContext& gpu, std::int64_t n, std::size_t to_offset, std::size_t from_offset) {
  SCOPED_TRACE(std::string(to_string(dtype_of<T>)) + " [" + std::to_string(n) + "] at " +
               std::to_string(to_offset) + " from " + std::to_string(from_offset));
  Array<T> from({n});
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = converted<T>(static_cast<double>(i % 100));
  const DeviceArray<T> source(gpu, from, from_offset), copy(gpu, {n}, to_offset), filled(gpu, {n}, to_offset);
  on(gpu.stream(), [&](auto& s) {
    kernels::assign(s, std::array<kernels::Assignment, 2>{{{.to = copy.view(), .from = source.view()},
                                                           {.to = filled.view(), .value = 7.25}}});
  });
  testing::expect_same_bits(copy.values(), from);
  testing::expect_same_bits(filled.values(), Array<T>({n}, converted<T>(7.25)));
}

TEST_F(CudaCast, AssignsWholePacksAndSingleBytes) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const std::int64_t n : {0, 1, 3, 4, 16, 257, 1024, 4099, 9000})
    for (const auto& [to_offset, from_offset] :
         {std::pair{std::size_t{0}, std::size_t{0}}, {1, 0}, {0, 1}, {1, 1}}) {
      check_assign<double>(gpu, n, to_offset, from_offset);
      check_assign<float>(gpu, n, to_offset, from_offset);
      check_assign<float16>(gpu, n, to_offset, from_offset);
      check_assign<bfloat16>(gpu, n, to_offset, from_offset);
      check_assign<std::int32_t>(gpu, n, to_offset, from_offset);
      check_assign<std::uint8_t>(gpu, n, to_offset, from_offset);
    }
}

TEST_F(CudaCast, AssignsMoreArraysThanFitInOneLaunch) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  constexpr std::size_t kArrays = 250;
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  std::vector<kernels::Assignment> assignments;
  for (std::size_t k = 0; k < kArrays; ++k) {
    arrays.push_back(std::make_unique<DeviceArray<float>>(gpu, Shape{static_cast<std::int64_t>(k % 3)}));
    assignments.push_back({.to = arrays.back()->view(), .value = static_cast<double>(k)});
  }
  on(gpu.stream(), [&](auto& s) { kernels::assign(s, assignments); });
  for (std::size_t k = 0; k < kArrays; ++k)
    testing::expect_same_bits(arrays[k]->values(),
                              Array<float>({static_cast<std::int64_t>(k % 3)}, static_cast<float>(k)));
}

}  // namespace
}  // namespace convoy
