// Compares kernels/elementwise.h on the GPU with the CPU. cuda_cast_test.cpp tests fill() and cast().
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numbers>
#include <string>
#include <type_traits>
#include <vector>

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

/// Returns half the spacing of T's subnormal numbers.
template <class T>
constexpr double smallest_rounding() {
  switch (dtype_of<T>) {
    case DType::f64: return 0x1p-1074;  // the whole spacing: half of it is not representable
    case DType::f32: return 0x1p-150;
    case DType::f16: return 0x1p-25;
    default: return 0x1p-134;
  }
}

/// A kernel z = f(x, y) whose results on the two devices may differ by at most `ulps` ulp of `magnitude`.
struct Op {
  std::string name;
  std::function<void(const Stream&, ConstView x, ConstView y, GradView z)> run;
  bool can_add;  // supports z += f(x, y)
  double ulps;
  std::function<double(double x, double y)> magnitude;
  double ulps_of_square = 0;  // additional ulps per x^2, in f32
};

// Tolerances for the difference between the devices, in ulp of the largest intermediate value.
constexpr double kExact = 0;
// nvcc may fuse a multiplication and an addition, which omits one rounding and may change the next.
constexpr double kFused = 2;
// The error of a function of the CUDA Math API (at most 2 ulp for expf and tanhf, 6 for erfcf, 5 for erfc:
// CUDA C++ Programming Guide, "Mathematical Functions"), of a function of
// kernels/cpu/primitives/vector_math.h (at most 8) or, for double, of the C library (at most 5: glibc manual,
// "Known Maximum Errors in Math Functions"), and five roundings.
constexpr double kFunction = 6 + 8 + 5;
// The GPU's rounding of an argument that grows with x, which vector_math.h avoids, per x^2. The argument of
// erfc, -x / sqrt(2), has an error of 0.65 ulp (a rounded constant and a multiplication). The logarithm of
// Phi has the derivative phi / Phi <= |x| + 1 / |x|, so the result has an error of 0.65 (x^2 + 1) ulp (the 1
// is among the roundings above). The argument of exp, x^2 / 2, has an error of half an ulp, which gives 0.25
// x^2.
constexpr double kSquare = 0.65;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf_of(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double normal_density_of(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

/// Combines a kernel's two overloads in one function.
template <class F>
auto on_either(F f) {
  return [f](const Stream& stream, ConstView x, ConstView y, GradView z) {
    on(stream, [&](auto& s) { f(s, x, y, z); });
  };
}

/// x is in [-8, 8) and y in [-1, 1). Each op uses x for the argument that should be large.
std::vector<Op> all_ops() {
  const auto nothing = [](double, double) { return 0.0; };
  return {
      {"add", on_either([](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z); }), false, kExact,
       nothing},
      {"weighted add",
       on_either([](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z, 0.3, -1.7); }), false, kFused,
       [](double x, double y) { return std::abs(0.3 * x) + std::abs(1.7 * y); }},
      {"mul", on_either([](auto& s, auto x, auto y, auto z) { kernels::mul(s, x, y, z); }), true, kExact,
       [](double x, double y) { return std::abs(x * y); }},
      {"scale", on_either([](auto& s, auto x, auto, auto z) { kernels::scale(s, x, 0.3, z); }), true, kExact,
       [](double x, double) { return std::abs(0.3 * x); }},
      {"relu_forward", on_either([](auto& s, auto x, auto, auto z) {
         kernels::unary_forward(s, kernels::UnaryOp::relu, x, z);
       }),
       false, kExact, nothing},
      {"relu_backward", on_either([](auto& s, auto dy, auto y, auto z) {
         kernels::unary_backward(s, kernels::UnaryOp::relu, dy, y, z);
       }),
       true, kExact, nothing},
      {"gelu_forward", on_either([](auto& s, auto x, auto, auto z) {
         kernels::unary_forward(s, kernels::UnaryOp::gelu, x, z);
       }),
       false, kFunction, [](double x, double) { return std::abs(x) * normal_cdf_of(x); }, kSquare},
      {"gelu_backward", on_either([](auto& s, auto x, auto dy, auto z) {
         kernels::unary_backward(s, kernels::UnaryOp::gelu, dy, x, z);
       }),
       true, kFunction,
       [](double x, double dy) {
         return std::abs(dy) * (normal_cdf_of(x) + std::abs(x) * normal_density_of(x));
       },
       kSquare},
      {"silu_forward", on_either([](auto& s, auto x, auto, auto z) {
         kernels::unary_forward(s, kernels::UnaryOp::silu, x, z);
       }),
       false, kFunction, [](double x, double) { return std::abs(x) * sigmoid_of(x); }},
      {"silu_backward", on_either([](auto& s, auto x, auto dy, auto z) {
         kernels::unary_backward(s, kernels::UnaryOp::silu, dy, x, z);
       }),
       true, kFunction, [](double x, double dy) { return std::abs(dy) * sigmoid_of(x) * (1 + std::abs(x)); }},
      {"tanh_forward", on_either([](auto& s, auto x, auto, auto z) {
         kernels::unary_forward(s, kernels::UnaryOp::tanh, x, z);
       }),
       false, kFunction, [](double x, double) { return std::abs(std::tanh(x)); }},
      {"tanh_backward", on_either([](auto& s, auto dy, auto y, auto z) {
         kernels::unary_backward(s, kernels::UnaryOp::tanh, dy, y, z);
       }),
       true, kFused, [](double dy, double y) { return std::abs(dy) * (1 + y * y); }},
      {"sigmoid_forward", on_either([](auto& s, auto x, auto, auto z) {
         kernels::unary_forward(s, kernels::UnaryOp::sigmoid, x, z);
       }),
       false, kFunction, [](double x, double) { return sigmoid_of(x); }},
      {"sigmoid_backward", on_either([](auto& s, auto dy, auto y, auto z) {
         kernels::unary_backward(s, kernels::UnaryOp::sigmoid, dy, y, z);
       }),
       true, kExact, [](double dy, double y) { return std::abs(dy * y) * (1 + std::abs(y)); }},
  };
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
Array<ComputeType<T>> on_cpu(const Op& op, GradMode mode, const Inputs<T>& in) {
  using R = ComputeType<T>;
  CpuStream stream({.threads = 1});
  const Array<R> x = in.x.template to<R>(), y = in.y.template to<R>();
  Array<R> z = in.z.template to<R>();
  op.run(stream, x.view(), y.view(), z.grad(mode));
  return z;
}

template <class T>
void expect_agreement(const Op& op, GradMode mode, const Inputs<T>& in, const Array<T>& gpu) {
  using R = ComputeType<T>;
  const Array<R> cpu = on_cpu(op, mode, in);
  for (std::size_t e = 0; e < gpu.size(); ++e) {
    const double x = value_of(in.x[e]), y = value_of(in.y[e]), z = value_of(in.z[e]);
    const double found = value_of(gpu[e]);
    const double magnitude = op.magnitude(x, y);
    double ulps = op.ulps;
    if (std::is_same_v<R, float> && op.ulps_of_square > 0) ulps += op.ulps_of_square * x * x;
    double tolerance = ulps * 2 * unit_roundoff<R>() * magnitude;
    if (mode == GradMode::accumulate && magnitude > 0)
      tolerance += kFused * 2 * unit_roundoff<R>() * (magnitude + std::abs(z));
    const auto place = [&] {
      return op.name + ", element " + std::to_string(e) + " of " + gpu.shape().text() + ": of " +
             std::to_string(x) + ", " + std::to_string(y);
    };
    const double rounded = value_of(static_cast<T>(cpu[e]));
    if (std::isnan(rounded)) {
      ASSERT_TRUE(std::isnan(found)) << place();
    } else if (tolerance == 0 || !std::isfinite(rounded)) {
      ASSERT_EQ(found, rounded) << place();
    } else {
      if (!std::is_same_v<T, R>) tolerance += unit_roundoff<T>() * (std::abs(value_of(cpu[e])) + tolerance);
      ASSERT_NEAR(found, cpu[e], tolerance + 2 * smallest_rounding<T>()) << place();
    }
  }
}

/// Sizes around the ends of packs, of blocks, and of a block's packs.
std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> sizes(std::begin(testing::kTailSizes), std::end(testing::kTailSizes));
  sizes.insert(sizes.end(), {4096, 8197});
  return sizes;
}

template <class T>
class CudaElementwise : public testing::GpuTest {};
using CudaElementwiseTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaElementwise, CudaElementwiseTypes);

TYPED_TEST(CudaElementwise, EqualsTheCpuForTailsAndUnalignedViews) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const std::vector<Op> ops = all_ops();
  for (const std::int64_t n : sizes()) {
    const Inputs<TypeParam> in(n);
    for (const Op& op : ops) {
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        if (mode == GradMode::accumulate && !op.can_add) continue;
        const Array<TypeParam> found = on_gpu(gpu, op, mode, in);
        expect_agreement(op, mode, in, found);
        this->for_each_order([&] {
          for (const Offsets& at : {Offsets{}, Offsets{1, 1, 1}, Offsets{1, 0, 0}, Offsets{0, 0, 1}})
            testing::expect_same_bits(on_gpu(gpu, op, mode, in, at), found);
        });
        if (this->HasFailure()) return;
      }
    }
  }
}

TYPED_TEST(CudaElementwise, SupportsInPlaceOutputs) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const std::int64_t n : {33, 8197}) {
    const Inputs<TypeParam> in(n);
    for (const Op& op : all_ops()) {
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
  for (const Op& op : all_ops())
    expect_agreement(op, GradMode::overwrite, in, on_gpu(gpu, op, GradMode::overwrite, in));
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
