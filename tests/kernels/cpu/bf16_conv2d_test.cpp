// Tests that convolutions on bf16 on the CPU compute in f32 and round once, or as often as oneDNN does, and that
// other code computes what oneDNN cannot.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "convoy/kernels/cpu/onednn/versions.h"
#include "convoy/kernels/matmul.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/conv2d_comparison.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/errors.h"

namespace {

std::atomic<bool> onednn_refuses = false;

}  // namespace

// These take precedence over the functions of oneDNN.
extern "C" dnnl_status_t dnnl_primitive_create(dnnl_primitive_t* primitive,
                                               const_dnnl_primitive_desc_t description) {
  static const auto real =
      reinterpret_cast<decltype(&dnnl_primitive_create)>(dlsym(RTLD_NEXT, "dnnl_primitive_create"));
  return onednn_refuses ? dnnl_unimplemented : real(primitive, description);
}
extern "C" dnnl_status_t dnnl_sgemm(char transpose_a, char transpose_b, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const float* a, dnnl_dim_t lda, const float* b,
                                    dnnl_dim_t ldb, float beta, float* c, dnnl_dim_t ldc) {
  static const auto real = reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(RTLD_NEXT, "dnnl_sgemm"));
  if (onednn_refuses) return dnnl_unimplemented;
  return real(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

namespace convoy {
namespace {

using ::testing::AllOf;
using testing::Array;
using testing::ConvCase;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// An array in both types, with equal values.
class BothTypes {
 public:
  BothTypes(Shape shape, std::uint32_t seed) : BothTypes(Array<bfloat16>::random(shape, seed)) {}
  template <class T>
  Array<T>& of() {
    return std::get<Array<T>>(arrays_);
  }
  template <class T>
  View view() {
    return of<T>().view();
  }
  void expect_rounded_near(double tolerance) const {
    testing::expect_rounded_near(arrays_.first, arrays_.second, tolerance);
  }

 private:
  explicit BothTypes(const Array<bfloat16>& half) : arrays_(half, half.to<float>()) {}
  std::pair<Array<bfloat16>, Array<float>> arrays_;
};

/// Calls run.operator()<T>() for bf16 and f32.
template <class Run>
void in_both_types(const Run& run) {
  run.template operator()<bfloat16>();
  run.template operator()<float>();
}

class Bf16Convolutions : public ::testing::TestWithParam<GradMode> {
 protected:
  CpuStream stream{{.threads = 2}};
};

INSTANTIATE_TEST_SUITE_P(Modes, Bf16Convolutions,
                         ::testing::Values(GradMode::overwrite, GradMode::accumulate));

/// The arrays of a convolution in f32 and bf16.
struct Convolved {
  BothTypes x, filter, bias, dy, y, rectified, dx, dfilter;

  Convolved(CpuStream& stream, const ConvCase& c, GradMode mode)
      : x(c.x(), 1),
        filter(c.filter(), 2),
        bias({c.o}, 3),
        dy(c.y(), 4),
        y(c.y(), 5),
        rectified(c.y(), 6),
        dx(c.x(), 7),
        dfilter(c.filter(), 8) {
    Conv2dOptions with_relu = c.options();
    with_relu.relu = true;
    in_both_types([&]<class T>() {
      kernels::conv2d_forward(stream, x.view<T>(), filter.view<T>(), {}, y.view<T>(), c.options());
      kernels::conv2d_forward(stream, x.view<T>(), filter.view<T>(), bias.view<T>(), rectified.view<T>(),
                              with_relu);
      kernels::conv2d_backward_data(stream, dy.view<T>(), filter.view<T>(), dx.of<T>().grad(mode),
                                    c.options());
      kernels::conv2d_backward_filter(stream, dy.view<T>(), x.view<T>(), dfilter.of<T>().grad(mode),
                                      c.options());
    });
  }

  /// `roundings` is the number of roundings to bf16: one, or two if the result is rounded before an addition.
  void expect_near(const ConvCase& c, int roundings) const {
    const auto tolerance = [&](std::int64_t terms) {
      // Sums of this many terms rarely exceed three times their standard deviation, sqrt(terms) / 3.
      const double rounding =
          testing::unit_roundoff<bfloat16>() * (std::sqrt(static_cast<double>(terms)) + 1);
      return 8 * testing::dot_tolerance<bfloat16>(terms) + (roundings - 1) * 2 * rounding;
    };
    y.expect_rounded_near(tolerance(c.kh * c.kw * c.i));
    rectified.expect_rounded_near(tolerance(c.kh * c.kw * c.i));
    dx.expect_rounded_near(tolerance(c.kh * c.kw * c.o));
    dfilter.expect_rounded_near(tolerance(c.n * c.oh() * c.ow()));
  }
};

/// Sets an environment variable, which a stream reads at its first convolution.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST_P(Bf16Convolutions, ConvolutionsOnF32Copies) {
  const Environment environment("CONVOY_ONEDNN_BF16", "off");
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 1);
  }
}

TEST_P(Bf16Convolutions, ConvolutionsByOneDnn) {
  const Environment environment("CONVOY_ONEDNN_BF16", "on");
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 2);
  }
  if (kernels::onednn::has_instructions(dnnl::cpu_isa::avx512_core)) {
    EXPECT_THAT(stream.take_warnings(), IsEmpty()) << "from AVX-512 on, oneDNN has each of these";
  }
}

/// Makes oneDNN refuse new primitives and matrix multiplications while the object exists.
struct OneDnnRefuses {
  OneDnnRefuses() { onednn_refuses = true; }
  ~OneDnnRefuses() { onednn_refuses = false; }
};

/// Matches the warning that another algorithm replaces one of oneDNN.
auto replaced(const std::string& which, const std::string& by) {
  return AllOf(HasSubstr(" has no " + which + " x ["), HasSubstr("(status 3); "), HasSubstr(by));
}

TEST_P(Bf16Convolutions, OneDnnWithoutPrimitivesIsReplacedWithAWarningEach) {
  const Environment environment("CONVOY_ONEDNN_BF16", "on");
  const OneDnnRefuses refuses;
  for (const ConvCase& c : testing::kConvCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 1);
  }
  const auto is_slow = [](const std::string& which) {
    return replaced(which + " of f32", "plain loops compute it, which are slow");
  };
  const auto is_replaced = [](const std::string& which) {
    return replaced(which + " of bf16", " replaces it");
  };
  EXPECT_THAT(stream.take_warnings(),
              UnorderedElementsAre(is_replaced("convolution"), is_replaced("gradient of the images"),
                                   is_replaced("gradient of the filter"), is_slow("convolution"),
                                   is_slow("gradient of the images"), is_slow("gradient of the filter")));
}

TEST_P(Bf16Convolutions, OneDnnWithoutPrimitivesIsReplacedInF32) {
  const OneDnnRefuses refuses;
  for (const ConvCase& c :
       {ConvCase{9, 16, 16, 12, 20, 3, 3, 1, 1}, ConvCase{3, 9, 9, 24, 40, 3, 3, 2, 1, 2}})
    testing::compare_with_reference(
        stream, {kernels::conv2d_forward, kernels::conv2d_backward_data, kernels::conv2d_backward_filter}, 1,
        c, GetParam());
  EXPECT_THAT(stream.take_warnings(), ::testing::SizeIs(3));
}

TEST(Matmul, OpenBlasReplacesOneDnnWithAWarning) {
  const OneDnnRefuses refuses;
  CpuStream stream({.threads = 2});
  const auto a = Array<float>::random({70, 300}, 1), b = Array<float>::random({300, 90}, 2);
  Array<float> c({70, 90});
  Array<double> expected({70, 90});
  for (int i = 0; i < 2; ++i) kernels::matmul(stream, a.view(), b.view(), c.grad(), {});
  kernels::matmul(stream, a.to<double>().view(), b.to<double>().view(), expected.grad(), {});
  testing::expect_near(c, expected, testing::direct_tolerance(300));
  const bool uses_onednn = kernels::onednn::has_instructions(dnnl::cpu_isa::avx2);
  EXPECT_THAT(stream.take_warnings(), uses_onednn
                                          ? ::testing::Matcher<std::vector<std::string>>(
                                                ::testing::ElementsAre(HasSubstr("; OpenBLAS replaces it")))
                                          : IsEmpty());
}

TEST_P(Bf16Convolutions, EmptyConvolutions) {
  for (const ConvCase& c : {ConvCase{0, 4, 4, 3, 5, 3, 3, 1, 1}, ConvCase{2, 4, 4, 0, 5, 3, 3, 1, 1},
                            ConvCase{2, 4, 4, 3, 0, 3, 3, 1, 1}}) {
    SCOPED_TRACE(::testing::Message() << c);
    Convolved(stream, c, GetParam()).expect_near(c, 1);
  }
}

TEST(Bf16Convolution, RejectsUnknownSwitchValue) {
  const Environment environment("CONVOY_ONEDNN_BF16", "perhaps");
  CpuStream stream({.threads = 1});
  EXPECT_EQ(testing::message_of<UsageError>([&] {
              Convolved(stream, {1, 4, 4, 3, 5, 3, 3, 1, 1}, GradMode::overwrite);
            }),
            "CONVOY_ONEDNN_BF16: found 'perhaps', expected on, off or auto");
}

}  // namespace
}  // namespace convoy
