// Compares kernels/reduce.h on the GPU with the CPU.
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

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
using testing::unit_roundoff;
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

TYPED_TEST(CudaReduce, Sum) {
  using T = TypeParam;
  std::vector<std::int64_t> sizes(std::begin(testing::kTailSizes), std::end(testing::kTailSizes));
  for (const std::int64_t n : {8191, 8192, 8193, 20003})
    sizes.push_back(n);  // around the size of a block's piece
  for (const std::int64_t n : sizes)
    for (const std::size_t offset : {0u, 1u})
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        SCOPED_TRACE(::testing::Message() << n << " at " << offset);
        const auto x = Array<T>::random({n}, 1);
        const Array<T> before({1}, {static_cast<T>(0.75f)});
        Array<double> y({1}, {0.75});
        kernels::sum(this->cpu, x.template to<double>().view(), y.grad(mode));
        const DeviceArray<T> gpu_x(this->gpu(), x, offset);
        Repeats<T> repeats;
        this->for_each_order([&] {
          const DeviceArray<T> gpu_y(this->gpu(), before, offset);
          on(this->gpu().stream(), [&](auto& s) { kernels::sum(s, gpu_x.view(), gpu_y.grad(mode)); });
          const Array<T> found = gpu_y.values();
          // One rounding to the compute type, and one more after 0.75 is added.
          const double size = std::abs(y[0]) + 0.75;
          expect_rounded_near(
              found, y, order_tolerance(static_cast<double>(n)) + 2 * unit_roundoff<ComputeType<T>>() * size);
          repeats.expect_same(found);
        });
      }
  on(this->gpu().stream(), [](auto& s) { kernels::sum(s, ConstView(), GradView()); });  // unwanted result
}

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

// Rows with and without whole packs; one or several row blocks; one or several column tiles.
const Shape kMatrices[] = {{0, 5},   {1, 1},    {3, 0},     {33, 10},  {257, 31},    {64, 33},
                           {70, 64}, {5003, 8}, {1100, 80}, {9001, 1}, {5, 7, 9, 3}, {9, 1032}};

TYPED_TEST(CudaReduce, SumRows) {
  using T = TypeParam;
  for (const Shape& shape : kMatrices)
    for (const std::size_t offset : {0u, 1u})
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        SCOPED_TRACE(shape.text() + " at " + std::to_string(offset));
        const Shape columns{shape[-1]};
        const double rows =
            static_cast<double>(shape.numel()) / static_cast<double>(std::max<std::int64_t>(1, shape[-1]));
        const auto x = Array<T>::random(shape, 2);
        const auto before = Array<T>::random(columns, 3);
        auto y = before.template to<double>();
        kernels::sum_rows(this->cpu, x.template to<double>().view(), y.grad(mode));
        const DeviceArray<T> gpu_x(this->gpu(), x, offset);
        // Two roundings to the compute type; a column's sum is about sqrt(rows / 3).
        const double tolerance =
            order_tolerance(rows) + 2 * unit_roundoff<ComputeType<T>>() * (4 * std::sqrt(rows / 3) + 1);
        Repeats<T> repeats;
        this->for_each_order([&] {
          const DeviceArray<T> gpu_y(this->gpu(), before, offset);
          on(this->gpu().stream(), [&](auto& s) { kernels::sum_rows(s, gpu_x.view(), gpu_y.grad(mode)); });
          const Array<T> found = gpu_y.values();
          expect_rounded_near(found, y, tolerance);
          repeats.expect_same(found);
        });
        if (mode == GradMode::accumulate) continue;
        const DeviceArray<double> wide(this->gpu(), columns);  // a result type other than that of x
        on(this->gpu().stream(), [&](auto& s) { kernels::sum_rows(s, gpu_x.view(), wide.grad()); });
        expect_rounded_near(wide.values(), y, order_tolerance(rows));
      }
  on(this->gpu().stream(), [](auto& s) {
    kernels::sum_rows(s, ConstView(nullptr, {3, 4}, dtype_of<T>), GradView());
  });
}

// Also in place, and without the gradient of a bias.
TYPED_TEST(CudaReduce, ReluBiasBackwardMatchesTwoKernels) {
  using T = TypeParam;
  for (const Shape& shape : kMatrices)
    for (const std::size_t offset : {0u, 1u})
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        SCOPED_TRACE(shape.text() + " at " + std::to_string(offset));
        auto results = Array<T>::random(shape, 4);  // negative ones too, which are as 0
        if (results.size() > 2)
          results[1] = T(std::numeric_limits<float>::quiet_NaN()), results[2] = T(-0.0F);
        const auto before = Array<T>::random({shape[-1]}, 3);
        const DeviceArray<T> dy(this->gpu(), Array<T>::random(shape, 2), offset), y(this->gpu(), results);
        const DeviceArray<T> g(this->gpu(), shape), db(this->gpu(), before, offset);
        on(this->gpu().stream(), [&](auto& s) {
          kernels::unary_backward(s, kernels::UnaryOp::relu, dy.view(), y.view(), g.grad());
          kernels::sum_rows(s, g.view(), db.grad(mode));
        });
        auto expected = before.template to<double>();
        kernels::sum_rows(this->cpu, g.values().template to<double>().view(), expected.grad(mode));
        const double rows =
            static_cast<double>(shape.numel()) / static_cast<double>(std::max<std::int64_t>(1, shape[-1]));
        const double tolerance =  // as for sum_rows()
            order_tolerance(rows) + 2 * unit_roundoff<ComputeType<T>>() * (4 * std::sqrt(rows / 3) + 1);
        Repeats<T> repeats;
        this->for_each_order([&] {
          const DeviceArray<T> found(this->gpu(), shape, offset), sums(this->gpu(), before, offset);
          const DeviceArray<T> in_place(this->gpu(), dy.values());
          on(this->gpu().stream(), [&](auto& s) {
            kernels::relu_bias_backward(s, dy.view(), y.view(), found.view(), sums.grad(mode));
            kernels::relu_bias_backward(s, in_place.view(), y.view(), in_place.view(), GradView());
          });
          testing::expect_same_bits(found.values(), g.values());
          testing::expect_same_bits(in_place.values(), g.values());
          expect_rounded_near(sums.values(), expected, tolerance);
          repeats.expect_same(sums.values());
          if (rows <= 70) testing::expect_same_bits(sums.values(), db.values());  // one block of rows
          on(this->gpu().stream(), [&](auto& s) {
            const DeviceArray<T> again(this->gpu(), before);
            kernels::relu_bias_backward(s, found.view(), y.view(), found.view(), again.grad(mode));
          });
          testing::expect_same_bits(found.values(), g.values());
        });
      }
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

TYPED_TEST(CudaReduce, AddBias) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const Shape& shape : kMatrices)
    for (const std::size_t offset : {0u, 1u})
      for (const bool relu : {false, true}) {
        SCOPED_TRACE(shape.text() + " at " + std::to_string(offset) + (relu ? " relu" : ""));
        auto x = Array<T>::random(shape, 2);
        if (x.size() > 2) x[x.size() / 2] = static_cast<T>(kNaN);
        const auto bias = Array<T>::random({shape[-1]}, 3);
        Array<C> y(shape);
        kernels::add_bias(this->cpu, x.template to<C>().view(), bias.template to<C>().view(), y.view(), relu);
        const DeviceArray<T> gpu_bias(this->gpu(), bias, offset);
        this->for_each_order([&] {
          const DeviceArray<T> gpu_x(this->gpu(), x, offset), gpu_y(this->gpu(), shape, offset);
          on(this->gpu().stream(), [&](auto& s) {
            kernels::add_bias(s, gpu_x.view(), gpu_bias.view(), gpu_y.view(), relu);
            kernels::add_bias(s, gpu_x.view(), gpu_bias.view(), gpu_x.view(), relu);
          });
          expect_rounded(gpu_y.values(), y);  // one addition, the same on both devices
          expect_rounded(gpu_x.values(), y);
        });
      }
}

TYPED_TEST(CudaReduce, BroadcastScalar) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const std::int64_t n : {0, 1, 31, 33, 257, 8191, 8192, 8193})
    for (const std::size_t offset : {0u, 1u})
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        const Array<T> x({1}, {static_cast<T>(3.0f)});
        const auto before = Array<T>::random({n}, 1);
        auto y = before.template to<C>();
        kernels::broadcast_scalar(this->cpu, x.template to<C>().view(), 1.0 / 7, y.grad(mode));
        const DeviceArray<T> gpu_x(this->gpu(), x, offset);
        const DeviceArray<float> float_x(this->gpu(), Array<float>({1}, {3}));
        this->for_each_order([&] {
          const DeviceArray<T> gpu_y(this->gpu(), before, offset), of_float(this->gpu(), before);
          on(this->gpu().stream(), [&](auto& s) {
            kernels::broadcast_scalar(s, gpu_x.view(), 1.0 / 7, gpu_y.grad(mode));
            kernels::broadcast_scalar(s, float_x.view(), 1.0 / 7, of_float.grad(mode));
          });
          // nvcc may fuse multiplication and addition: two roundings of numbers below 2.
          expect_rounded_near(gpu_y.values(), y, 4 * unit_roundoff<C>());
          expect_rounded_near(of_float.values(), y, 4 * unit_roundoff<C>());
        });
      }
  on(this->gpu().stream(),
     [](auto& s) { kernels::broadcast_scalar(s, ConstView(nullptr, {1}, dtype_of<T>), 1, GradView()); });
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

TYPED_TEST(CudaReduce, ArgmaxIsTheFirstLargest) {
  using T = TypeParam;
  using C = ComputeType<T>;
  const std::int64_t all_columns[] = {1, 2, 10, 31, 33, 129, 1000, 1024, 1025, 1537};
  for (const std::int64_t columns : all_columns)
    for (const std::int64_t rows : {0, 1, 9}) {
      const std::size_t offset = columns % 2;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " at " << offset);
      auto x = Array<T>::random({rows, columns}, static_cast<std::uint32_t>(columns));
      for (T& value : x) value = static_cast<T>(std::round(value_of(value) * 20));  // creates ties
      for (std::int64_t row = 0; row < rows; ++row) {
        T* const of_row = x.begin() + row * columns;
        if (row == 1) std::fill_n(of_row, columns, static_cast<T>(-kInfinity));
        if (row == 2) of_row[0] = static_cast<T>(kNaN);            // the result is the first element
        if (row == 3) of_row[columns / 2] = static_cast<T>(kNaN);  // skipped, unless it is the first element
        if (row == 4) std::fill_n(of_row + 1, columns - 1, static_cast<T>(kNaN));
        if (row == 5) of_row[0] = static_cast<T>(kNaN), of_row[columns - 1] = static_cast<T>(kInfinity);
      }
      Array<std::int32_t> indices({rows});
      kernels::argmax(this->cpu, x.template to<C>().view(), indices.view());
      const DeviceArray<T> gpu_x(this->gpu(), x, offset);
      this->for_each_order([&] {
        const DeviceArray<std::int32_t> found(this->gpu(), {rows});
        on(this->gpu().stream(), [&](auto& s) { kernels::argmax(s, gpu_x.view(), found.view()); });
        testing::expect_same_bits(found.values(), indices);
      });
    }
}

}  // namespace
}  // namespace convoy
