// Compares kernels/elementwise.h on the GPU with the CPU. cuda_cast_test.cpp tests fill() and cast().
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "convoy/kernels/broadcast.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::unit_roundoff;
using testing::value_of;

/// A kernel z = f(x, y).
struct Op {
  std::string name;
  std::function<void(const Stream&, ConstView x, ConstView y, GradView z)> run;
  bool can_add;  // supports z += f(x, y)
};

// nvcc may fuse a multiplication and an addition, which omits one rounding and may change the next.
constexpr double kFused = 2;

/// Combines a kernel's two overloads in one function.
template <class F>
auto on_either(F f) {
  return [f](const Stream& stream, ConstView x, ConstView y, GradView z) {
    on(stream, [&](auto& s) { f(s, x, y, z); });
  };
}

std::vector<Op> all_ops() {
  std::vector<Op> ops = {
      {"add", on_either([](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z); }), false},
      {"weighted add",
       on_either([](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z, 0.3, -1.7); }), false},
      {"mul", on_either([](auto& s, auto x, auto y, auto z) {
         kernels::binary(s, kernels::BinaryOp::mul, x, y, z);
       }),
       true},
      {"scale", on_either([](auto& s, auto x, auto, auto z) { kernels::scale(s, x, 0.3, z); }), true},
  };
  using kernels::UnaryOp;
  for (const UnaryOp op : {UnaryOp::relu, UnaryOp::gelu, UnaryOp::silu, UnaryOp::tanh, UnaryOp::sigmoid}) {
    const std::string number = std::to_string(static_cast<int>(op));
    ops.push_back({"forward of op " + number,
                   on_either([op](auto& s, auto x, auto, auto z) { kernels::unary_forward(s, op, x, z); }),
                   false});
    ops.push_back({"backward of op " + number, on_either([op](auto& s, auto x, auto dy, auto z) {
                     kernels::unary_backward(s, op, dy, x, z);
                   }),
                   true});
  }
  return ops;
}

/// Offsets of the views from an aligned address, in elements.
struct Offsets {
  std::size_t x = 0, y = 0, z = 0;
};

/// The inputs x and y, and the previous contents of z.
template <class T>
struct Inputs {
  Array<T> x, y, z;

  explicit Inputs(std::int64_t n)
      : x(Array<T>::random({n}, 1)), y(Array<T>::random({n}, 2)), z(Array<T>::random({n}, 3)) {
    for (T& element : x) element = static_cast<T>(static_cast<ComputeType<T>>(8 * value_of(element)));
  }
};

template <class T>
Array<T> on_gpu(const DeviceContext& gpu, const Op& op, GradMode mode, const Inputs<T>& in,
                const Offsets& at = {}) {
  const DeviceArray<T> x(gpu, in.x, at.x), y(gpu, in.y, at.y), z(gpu, in.z, at.z);
  op.run(gpu.stream(), x.view(), y.view(), z.grad(mode));
  return z.values();
}

template <class T>
class CudaElementwise : public testing::GpuTest {};
using CudaElementwiseTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaElementwise, CudaElementwiseTypes);

// The op cases test the values.
TYPED_TEST(CudaElementwise, GivesTheSameBitsAtEveryAddressAndInPlace) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const std::int64_t n : {33, 8197}) {
    const Inputs<TypeParam> in(n);
    for (const Op& op : all_ops()) {
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        if (mode == GradMode::accumulate && !op.can_add) continue;
        const Array<TypeParam> found = on_gpu(gpu, op, mode, in);
        for (const Offsets& at : {Offsets{1, 1, 1}, Offsets{1, 0, 0}, Offsets{0, 0, 1}})
          testing::expect_same_bits(on_gpu(gpu, op, mode, in, at), found);
      }
      const Array<TypeParam> found = on_gpu(gpu, op, GradMode::overwrite, in);
      const DeviceArray<TypeParam> x(gpu, in.x), y(gpu, in.y), on_x(gpu, in.x), on_y(gpu, in.y);
      op.run(gpu.stream(), on_x.view(), y.view(), on_x.grad());
      testing::expect_same_bits(on_x.values(), found);
      op.run(gpu.stream(), x.view(), on_y.view(), on_y.grad());
      testing::expect_same_bits(on_y.values(), found);
    }
  }
}

TYPED_TEST(CudaElementwise, HandlesExtremesLikeTheCpu) {
  using R = ComputeType<TypeParam>;
  using Limits = std::numeric_limits<R>;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const std::vector<R> values = {R{0},
                                 R{-0.0},
                                 R{1e4},
                                 R{-1e4},
                                 Limits::infinity(),
                                 -Limits::infinity(),
                                 Limits::max(),
                                 Limits::lowest(),
                                 Limits::denorm_min(),
                                 Limits::min(),
                                 Limits::quiet_NaN(),
                                 R{0.5}};
  const auto count = static_cast<std::int64_t>(values.size());
  Inputs<TypeParam> in(count * count);
  for (std::size_t e = 0; e < in.x.size(); ++e) {
    in.x[e] = static_cast<TypeParam>(values[e / values.size()]);
    in.y[e] = static_cast<TypeParam>(values[e % values.size()]);
  }
  CpuStream cpu({.threads = 1});
  const Array<R> x = in.x.template to<R>(), y = in.y.template to<R>();
  for (const Op& op : all_ops()) {
    const Array<TypeParam> found = on_gpu(gpu, op, GradMode::overwrite, in);
    Array<R> expected(x.shape());
    op.run(cpu, x.view(), y.view(), expected.grad());
    for (std::size_t e = 0; e < found.size(); ++e) {
      SCOPED_TRACE(op.name + " of " + std::to_string(x[e]) + ", " + std::to_string(y[e]));
      const double value = value_of(found[e]), rounded = value_of(static_cast<TypeParam>(expected[e]));
      if (std::isfinite(rounded)) {
        const double tolerance = 64 * unit_roundoff<R>() + 4 * unit_roundoff<TypeParam>();
        ASSERT_NEAR(value, rounded,
                    tolerance * std::abs(rounded) + (dtype_of<TypeParam> == DType::f16 ? 0x1p-23 : 1e-37));
      } else {
        ASSERT_TRUE(value == rounded || (std::isnan(value) && std::isnan(rounded))) << value;
      }
    }
  }
}

TYPED_TEST(CudaElementwise, DoesNotWriteUnwantedGradient) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Inputs<TypeParam> in(33);
  const DeviceArray<TypeParam> x(gpu, in.x), y(gpu, in.y);
  for (const Op& op : all_ops()) {
    if (!op.can_add) continue;
    EXPECT_NO_THROW(op.run(gpu.stream(), x.view(), y.view(), GradView())) << op.name;
  }
  gpu.synchronize();
}

template <class T>
class CudaDropout : public testing::GpuTest {
 protected:
  static constexpr Random kRandom{.seed = 0x123456789abcdef, .purpose = RandomPurpose::dropout, .stream = 3};

  static std::int32_t id_of(std::size_t sample) { return static_cast<std::int32_t>(sample * 2654435761U); }

  /// Expects the same bits as the CPU. When accumulating, nvcc may fuse and round once less.
  static void check(const DeviceContext& gpu, std::int64_t samples, std::int64_t sample_size, double p,
                    const Offsets& at = {}) {
    using R = ComputeType<T>;
    SCOPED_TRACE(std::to_string(samples) + " samples of " + std::to_string(sample_size) + ", p " +
                 std::to_string(p) + ", offsets " + std::to_string(at.x) + ", " + std::to_string(at.z));
    const auto x = Array<T>::random({samples, sample_size}, 1);
    const auto before = Array<T>::random({samples, sample_size}, 2);
    Array<std::int32_t> ids({samples});
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = id_of(i);

    CpuStream cpu({.threads = 1});
    const Array<R> cpu_x = x.template to<R>();
    const DeviceArray<T> gpu_x(gpu, x, at.x);
    const DeviceArray<std::int32_t> gpu_ids(gpu, ids);
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      Array<R> cpu_y = before.template to<R>();
      kernels::dropout(cpu, cpu_x.view(), ids.view(), p, kRandom, cpu_y.grad(mode));
      const DeviceArray<T> gpu_y(gpu, before, at.z);
      on(gpu.stream(),
         [&](auto& s) { kernels::dropout(s, gpu_x.view(), gpu_ids.view(), p, kRandom, gpu_y.grad(mode)); });
      const Array<T> found = gpu_y.values();
      if (mode == GradMode::overwrite) {
        testing::expect_rounded(found, cpu_y);
      } else {
        const double largest = 1 / (1 - p) + 1;  // |x| times the factor, plus the previous value
        testing::expect_rounded_near(found, cpu_y, kFused * 2 * unit_roundoff<R>() * largest);
      }
    }
  }
};
TYPED_TEST_SUITE(CudaDropout, CudaElementwiseTypes);

TYPED_TEST(CudaDropout, DropsTheSameElementsAsTheCpu) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  this->for_each_order([&] {
    for (const double p : {0.0, 0.1, 0.5}) {
      // No samples; samples of less than a quad; several blocks of quads; several blocks of samples.
      this->check(gpu, 0, 5, p);
      this->check(gpu, 1, 1, p);
      this->check(gpu, 4, 21, p);
      this->check(gpu, 3, 512, p);
      this->check(gpu, 2, 1029, p);
      this->check(gpu, 2, 2056, p);
      this->check(gpu, 301, 10, p);
      for (const Offsets& at : {Offsets{.x = 1}, Offsets{.z = 1}, Offsets{.x = 2, .z = 2}})
        this->check(gpu, 3, 512, p, at);
    }
  });
}

TYPED_TEST(CudaDropout, ComparesWithExactThreshold) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto id = static_cast<std::uint64_t>(this->id_of(1));
  for (const std::uint32_t word : this->kRandom.words(id, 0)) {
    const double drawn = to_uniform(word);
    for (const double p : {drawn, std::nextafter(drawn, 1.0)}) this->check(gpu, 2, 4, p);
  }
}

TYPED_TEST(CudaDropout, ReadsTheEpochFromMemory) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<TypeParam> x(gpu, Array<TypeParam>::random({33, 21}, 1)), y(gpu, {33, 21}),
      z(gpu, {33, 21});
  Array<std::int32_t> ids({33});
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = this->id_of(i);
  const DeviceArray<std::int32_t> gpu_ids(gpu, ids);
  const DeviceArray<std::int32_t> epoch(gpu, Array<std::int32_t>({1}, {3}));  // kRandom's stream
  Random by_cell = this->kRandom;
  by_cell.stream = 0;
  by_cell.cell = epoch.view().template as<std::int32_t>();
  on(gpu.stream(), [&](auto& s) {
    kernels::dropout(s, x.view(), gpu_ids.view(), 0.5, this->kRandom, y.grad());
    kernels::dropout(s, x.view(), gpu_ids.view(), 0.5, by_cell, z.grad());
  });
  testing::expect_same_bits(z.values(), y.values());
}

TYPED_TEST(CudaDropout, DropsAllForProbabilityOne) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto x = Array<TypeParam>::random({3, 7}, 1);
  const DeviceArray<TypeParam> in(gpu, x), out(gpu, x);
  const DeviceArray<std::int32_t> ids(gpu, Array<std::int32_t>({3}, {1, 2, 3}));
  on(gpu.stream(), [&](auto& s) { kernels::dropout(s, in.view(), ids.view(), 1, {.seed = 5}, out.grad()); });
  testing::expect_same_bits(out.values(), Array<TypeParam>({3, 7}));
}

// More samples than rows in the grid; one type is enough.
using CudaDropoutOfManySamples = CudaDropout<float>;
TEST_F(CudaDropoutOfManySamples, ProcessesSamplesInTurns) {
  check(DeviceContext::create_cuda(0), 2051, 516, 0.5);
}

}  // namespace
}  // namespace convoy
