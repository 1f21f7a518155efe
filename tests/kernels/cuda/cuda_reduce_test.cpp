// Compares kernels/reduce.h on the GPU with the CPU.
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "convoy/kernels/reduce.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::expect_rounded;
using testing::expect_rounded_near;
using testing::Repeats;
using testing::value_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Both devices sum in f64 in different orders. The error is that of n random roundings of partial sums of n
/// numbers in [-1, 1), which are about sqrt(n).
double order_tolerance(double n) { return 0x1p-52 * n; }

class CudaReduceTest : public testing::GpuTest {
 protected:
  DeviceContext gpu() const { return gpu_; }  // each call of DeviceContext::create_cuda(0) creates a stream
  CpuStream cpu{{.threads = 1}};

 private:
  const DeviceContext gpu_ = Device::best();
};

template <class T>
class CudaReduce : public CudaReduceTest {};
using CudaReduceTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaReduce, CudaReduceTypes);

// One launch computes them.
TYPED_TEST(CudaReduce, NormAndCountOfOneSmallTensor) {
  using T = TypeParam;
  auto x = Array<T>::random({1000}, 4);
  Array<double> norm({1});
  const ConstView on_cpu = x.view();
  kernels::global_norm(this->cpu, {&on_cpu, 1}, norm.view());
  const DeviceArray<double> found_norm(this->gpu(), {1});
  const DeviceArray<T> finite(this->gpu(), x);
  x[3] = static_cast<T>(static_cast<float>(kNaN));
  x[999] = static_cast<T>(static_cast<float>(kInfinity));
  const DeviceArray<T> non_finite(this->gpu(), x);
  const DeviceArray<std::int32_t> count(this->gpu(), {1});
  const ConstView first = finite.view(), second = non_finite.view();
  on(this->gpu().stream(), [&](auto& s) {
    kernels::global_norm(s, {&first, 1}, found_norm.view());
    kernels::count_non_finite(s, {&second, 1}, count.view());
  });
  EXPECT_NEAR(found_norm.values()[0], norm[0], norm[0] * order_tolerance(1000));
  EXPECT_EQ(count.values()[0], 2);
}

TEST_F(CudaReduceTest, RoundsSumOfManyFloatsOnce) {
  constexpr std::int64_t kMany = 1000000;  // a sum in f32 would be wrong in the fourth digit
  const DeviceArray<float> x(gpu(), Array<float>({kMany}, 0.1f));
  const DeviceArray<float> y(gpu(), {1});
  on(gpu().stream(), [&](auto& s) { kernels::sum(s, x.view(), y.grad()); });
  EXPECT_EQ(y.values()[0], static_cast<float>(static_cast<double>(0.1f) * kMany));
}

TEST_F(CudaReduceTest, SumRowsWithManyColumnTiles) {
  const Shape shape{400, 8193};  // 257 column tiles leave room for only three row blocks
  const auto x = Array<float>::random(shape, 2);
  Array<double> y({shape[1]});
  kernels::sum_rows(cpu, x.to<double>().view(), y.grad());
  const DeviceArray<float> gpu_x(gpu(), x);
  const DeviceArray<double> gpu_y(gpu(), y.shape());
  on(gpu().stream(), [&](auto& s) { kernels::sum_rows(s, gpu_x.view(), gpu_y.grad()); });
  expect_rounded_near(gpu_y.values(), y, order_tolerance(400));
}

// The op cases test other values.
TYPED_TEST(CudaReduce, AddBiasAndReluWorkInPlaceAndPropagateNan) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const Shape& shape : {Shape{64, 33}, Shape{70, 64}})
    for (const bool relu : {false, true}) {
      auto x = Array<T>::random(shape, 2);
      x[x.size() / 2] = static_cast<T>(kNaN);
      const auto bias = Array<T>::random({shape[-1]}, 3);
      Array<C> y(shape);
      kernels::add_bias(this->cpu, x.template to<C>().view(), bias.template to<C>().view(), y.view(), relu);
      const DeviceArray<T> gpu_bias(this->gpu(), bias), in_place(this->gpu(), x), dy(this->gpu(), x),
          masked(this->gpu(), shape), summed(this->gpu(), shape), db(this->gpu(), {shape[-1]});
      on(this->gpu().stream(), [&](auto& s) {
        kernels::add_bias(s, in_place.view(), gpu_bias.view(), in_place.view(), relu);
        kernels::relu_bias_backward(s, dy.view(), in_place.view(), masked.view(), GradView());
        kernels::relu_bias_backward(s, dy.view(), in_place.view(), summed.view(), GradView(db.view()));
        kernels::relu_bias_backward(s, dy.view(), in_place.view(), dy.view(), GradView());
      });
      expect_rounded(in_place.values(), y);  // one addition, the same on both devices
      testing::expect_same_bits(dy.values(), masked.values());
      testing::expect_same_bits(summed.values(), masked.values());
    }
}

TYPED_TEST(CudaReduce, DoesNothingForUnwantedResults) {
  const ConstView none(nullptr, {3, 4}, dtype_of<TypeParam>);
  on(this->gpu().stream(), [&](auto& s) {
    kernels::sum(s, ConstView(), GradView());
    kernels::sum_rows(s, none, GradView());
  });
}

/// The same tensors on both devices, cycling through all types.
class Tensors {
 public:
  explicit Tensors(const DeviceContext& gpu) : gpu_(gpu) {}

  template <class T>
  void add(const Array<T>& values, std::size_t offset = 0) {
    const auto keep = [this](auto held) {
      views_of_last_ = ConstView(held->view());
      kept_.push_back(held);
      return views_of_last_;
    };
    on_cpu.push_back(keep(std::make_shared<const Array<T>>(values)));
    on_gpu.push_back(keep(std::make_shared<const DeviceArray<T>>(gpu_, values, offset)));
  }

  std::vector<ConstView> on_cpu, on_gpu;

 private:
  DeviceContext gpu_;
  ConstView views_of_last_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// More tensors than one launch takes, and more partial sums than a block has threads.
void add_many(Tensors& tensors) {
  std::uint32_t seed = 1;
  for (int i = 0; i < 52; ++i)
    for (const std::int64_t n : {0, 1, 31, 33, 8, 257}) {
      tensors.add(Array<float>::random({n}, seed++), i % 2);
      tensors.add(Array<bfloat16>::random({n}, seed++), i % 3);
    }
  for (const std::int64_t n : {8191, 8193, 30000}) {
    tensors.add(Array<float16>::random({n}, seed++));
    tensors.add(Array<double>::random({n}, seed++), 1);
  }
}

TEST_F(CudaReduceTest, GlobalNormCombinesAllTensors) {
  Tensors tensors(gpu());
  add_many(tensors);
  std::size_t total = 0;
  for (const ConstView& view : tensors.on_cpu) total += static_cast<std::size_t>(view.numel());
  Array<double> expected({1});
  kernels::global_norm(cpu, tensors.on_cpu, expected.view());
  Repeats<double> repeats;
  for_each_order([&] {
    const DeviceArray<double> norm(gpu(), {1});
    on(gpu().stream(), [&](auto& s) { kernels::global_norm(s, tensors.on_gpu, norm.view()); });
    const Array<double> found = norm.values();
    // All terms are positive, so each of `total` roundings is at most 2^-53 of the sum. The root halves the
    // error.
    expect_rounded_near(found, expected, 0x1p-53 * static_cast<double>(total) * expected[0]);
    repeats.expect_same(found);
  });
}

TEST_F(CudaReduceTest, GlobalNormOfEmptyHugeAndNonFinite) {
  const auto norm_of = [&](const Tensors& tensors) {
    const DeviceArray<double> norm(gpu(), {1});
    on(gpu().stream(), [&](auto& s) { kernels::global_norm(s, tensors.on_gpu, norm.view()); });
    return norm.values()[0];
  };
  Tensors tensors(gpu());
  EXPECT_EQ(norm_of(tensors), 0);
  tensors.add(Array<float>({0}));
  EXPECT_EQ(norm_of(tensors), 0);
  tensors.add(Array<float>({4}, 1e30f));  // its square overflows float
  EXPECT_NEAR(norm_of(tensors), 2 * static_cast<double>(1e30f), 1e16);
  tensors.add(Array<float16>({3}, static_cast<float16>(-std::numeric_limits<float>::infinity())));
  EXPECT_EQ(norm_of(tensors), kInfinity);
  tensors.add(Array<float>({3}, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(std::isnan(norm_of(tensors)));
}

TYPED_TEST(CudaReduce, CountNonFinite) {
  using T = TypeParam;
  constexpr float kLargest = dtype_of<T> == DType::f16 ? 65504 : 3e38f;
  Tensors tensors(this->gpu());
  tensors.add(Array<float>::random({100}, 1));
  tensors.add(Array<double>::random({100}, 1));
  std::int32_t expected = 0;
  const auto expect_count = [&] {
    Array<std::int32_t> by_cpu({1});
    kernels::count_non_finite(this->cpu, tensors.on_cpu, by_cpu.view());
    EXPECT_EQ(by_cpu[0], expected);
    this->for_each_order([&] {
      const DeviceArray<std::int32_t> count(this->gpu(), {1});
      on(this->gpu().stream(), [&](auto& s) { kernels::count_non_finite(s, tensors.on_gpu, count.view()); });
      EXPECT_EQ(count.values()[0], expected);
    });
  };
  expect_count();
  for (const std::size_t offset : {0u, 1u}) {
    auto x = Array<T>::random({8195}, 1);
    x[0] = static_cast<T>(kLargest);
    x[1] = static_cast<T>(-kLargest);
    x[2] = static_cast<T>(kInfinity);
    x[8191] = static_cast<T>(kNaN);
    x[8192] = static_cast<T>(-kInfinity);
    x[8194] = static_cast<T>(kNaN);
    tensors.add(x, offset);
    expected += 4;
    expect_count();
  }
}

TEST_F(CudaReduceTest, CountNonFiniteOfEmpty) {
  const DeviceArray<std::int32_t> count(gpu(), {1});
  on(gpu().stream(), [&](auto& s) { kernels::count_non_finite(s, {}, count.view()); });
  EXPECT_EQ(count.values()[0], 0);
}

TYPED_TEST(CudaReduce, MaximumOfAnAxisIsTheFirstNanOrTheFirstLargest) {
  using T = TypeParam;
  using C = ComputeType<T>;
  const std::int64_t all_columns[] = {1, 2, 10, 31, 33, 129, 1000, 1024, 1025, 1537};
  for (const std::int64_t columns : all_columns)
    for (const std::int64_t rows : {0, 1, 9}) {
      const std::size_t offset = columns % 2;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " at " << offset);
      auto x = Array<T>::random({rows, columns, 1}, static_cast<std::uint32_t>(columns));
      for (T& value : x) value = static_cast<T>(std::round(value_of(value) * 20));  // creates ties
      for (std::int64_t row = 0; row < rows; ++row) {
        T* const of_row = x.begin() + row * columns;
        if (row == 1) std::fill_n(of_row, columns, static_cast<T>(-kInfinity));
        if (row == 2) of_row[0] = static_cast<T>(kNaN);
        if (row == 3) of_row[columns / 2] = static_cast<T>(kNaN);
        if (row == 4) std::fill_n(of_row + 1, columns - 1, static_cast<T>(kNaN));
        if (row == 5) of_row[0] = static_cast<T>(kNaN), of_row[columns - 1] = static_cast<T>(kInfinity);
      }
      Array<C> largest({rows, 1});
      Array<std::int32_t> indices({rows, 1});
      kernels::max_axis(this->cpu, x.template to<C>().view(), largest.view(), indices.view());
      const DeviceArray<T> gpu_x(this->gpu(), x, offset);
      this->for_each_order([&] {
        const DeviceArray<T> values(this->gpu(), {rows, 1});
        const DeviceArray<std::int32_t> found(this->gpu(), {rows, 1});
        on(this->gpu().stream(),
           [&](auto& s) { kernels::max_axis(s, gpu_x.view(), values.view(), found.view()); });
        testing::expect_same_bits(found.values(), indices);
        expect_rounded(values.values(), largest);
      });
    }
}

class CudaChecksum : public testing::GpuTest {};

template <class T>
void expect_value_of_cpu(const DeviceContext& gpu, std::int64_t count) {
  CpuStream cpu{{.threads = 1}};
  const auto x = Array<T>::random({count}, 5);
  Array<std::int32_t> expected({2}, 0), found({2}, 0);
  kernels::checksum(cpu, x.view(), expected.view());
  const DeviceArray<T> gpu_x(gpu, x);
  const DeviceArray<std::int32_t> value(gpu, Array<std::int32_t>({2}, 7));
  on(gpu.stream(), [&](auto& s) { kernels::checksum(s, gpu_x.view(), value.view()); });
  found = value.values();
  EXPECT_EQ(found[0], expected[0]) << count;
  EXPECT_EQ(found[1], expected[1]) << count;
}

TEST_F(CudaChecksum, IsThatOfTheCpu) {
  const DeviceContext gpu = Device::best();
  for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 31, 32, 33, 255, 257, 1025, 70001}) {
    expect_value_of_cpu<float>(gpu, count);
    expect_value_of_cpu<double>(gpu, count);
    expect_value_of_cpu<bfloat16>(gpu, count);
  }
}

}  // namespace
}  // namespace convoy
