// Tests of the emulated cuBLASLt: the calls that it rejects, its algorithms, and what they compute.
#include <limits>
#include <map>
#include <optional>
#include <type_traits>

#include "convoy/kernels/base/dtype.h"
#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/vendor/vendor.h"

namespace convoy::emulator {
namespace {

using namespace cublaslt_algorithm;  // NOLINT: its constants
using Floats = std::vector<float>;

template <class T>
inline constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t kType<double> = CUDA_R_64F;
template <>
inline constexpr cudaDataType_t kType<float16> = CUDA_R_16F;
template <>
inline constexpr cudaDataType_t kType<bfloat16> = CUDA_R_16BF;

/// The arguments of D = op(A) op(B), each of which a test may change.
struct Call {
  std::int64_t m = 4, n = 8, k = 16;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F, scale = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::optional<cudaDataType_t> bias_type = {};
  std::int64_t padding = 0;  // elements between columns
  std::uint64_t workspace_limit = 0;
  std::uint32_t alignment = 256;
  std::int64_t d_rows = -1;  // -1: m
  // Members that differ from the default.
  std::optional<cudaDataType_t> in_b = {}, in_c = {};
  std::int64_t more_rows_of_b = 0, more_padding_of_c = 0;
};

class VendorGemm : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    set(VendorSettings{});
    reset_vendor_counts();
    gpu_.emplace();
    gpu_->stream.make_current();
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    gpu_.reset();
    set(VendorSettings{});
    EmulatorTest::TearDown();
  }

  struct Objects {
    explicit Objects(const Call& call) {
      const bool flips_a = call.transpose_a != CUBLAS_OP_N, flips_b = call.transpose_b != CUBLAS_OP_N;
      EXPECT_EQ(cublasLtMatmulDescCreate(&operation, call.compute, call.scale), CUBLAS_STATUS_SUCCESS);
      set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(call.transpose_a));
      set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(call.transpose_b));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
      if (call.bias_type)
        set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(*call.bias_type));
      a = layout(call.in, flips_a ? call.k : call.m, flips_a ? call.m : call.k, call.padding);
      b = layout(call.in_b.value_or(call.in), (flips_b ? call.n : call.k) + call.more_rows_of_b,
                 flips_b ? call.k : call.n, call.padding);
      const std::int64_t rows = call.d_rows >= 0 ? call.d_rows : call.m;
      c = layout(call.in_c.value_or(call.out), rows, call.n, call.padding + call.more_padding_of_c);
      d = layout(call.out, rows, call.n, call.padding);
      EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
      prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, call.workspace_limit);
      for (const auto which :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(which, call.alignment);
    }
    ~Objects() {
      EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
      for (const auto one : {a, b, c, d}) EXPECT_EQ(cublasLtMatrixLayoutDestroy(one), CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    }
    Objects(const Objects&) = delete;
    Objects& operator=(const Objects&) = delete;

    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    template <class T>
    void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    }
    static cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols,
                                         std::int64_t padding) {
      cublasLtMatrixLayout_t made = nullptr;
      EXPECT_EQ(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                           static_cast<std::uint64_t>(cols), rows + padding),
                CUBLAS_STATUS_SUCCESS);
      return made;
    }

    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
  };

  struct Found {
    cublasStatus_t status;
    std::vector<std::uint64_t> algorithms = {};
    std::vector<std::size_t> workspaces = {};
  };
  Found heuristics(const Call& call, int requested = 8) {
    const Objects objects(call);
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int returned = 0;
    Found found{cublasLtMatmulAlgoGetHeuristic(handle_, objects.operation, objects.a, objects.b, objects.c,
                                               objects.d, objects.preference, requested, results.data(),
                                               &returned)};
    for (int i = 0; i < returned; ++i) {
      const auto& result = results[static_cast<std::size_t>(i)];
      EXPECT_EQ(result.state, CUBLAS_STATUS_SUCCESS);
      found.algorithms.push_back(result.algo.data[0]);
      found.workspaces.push_back(result.workspaceSize);
    }
    return found;
  }

  /// Multiplies with one algorithm, or with the one that the library chooses if it is null. C is D.
  cublasStatus_t multiply(const Call& call, const void* a, const void* b, void* d,
                          std::optional<std::uint64_t> algorithm = {}, double alpha = 1, double beta = 0,
                          void* workspace = nullptr, std::size_t workspace_bytes = 0) {
    const Objects objects(call);
    const cublasLtMatmulAlgo_t algo{{algorithm.value_or(0)}};
    const auto alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
    const bool is_double = call.scale == CUDA_R_64F;
    return cublasLtMatmul(handle_, objects.operation, is_double ? static_cast<const void*>(&alpha) : &alpha32,
                          a, objects.a, b, objects.b, is_double ? static_cast<const void*>(&beta) : &beta32,
                          d, objects.c, d, objects.d, algorithm ? &algo : nullptr, workspace, workspace_bytes,
                          gpu_->stream.handle());
  }

  std::optional<Gpu> gpu_;
  cublasLtHandle_t handle_ = nullptr;
};

/// Returns small integers, so that sums are exact in any type.
template <class T>
std::vector<T> integers(std::size_t count, int seed) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>(i * 7 + static_cast<std::size_t>(seed)) % 5 - 2;
    if constexpr (std::is_same_v<T, double>)
      values.push_back(value);
    else
      values.push_back(T(static_cast<float>(value)));
  }
  return values;
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& values) {
  std::vector<double> result;
  for (const T value : values) {
    if constexpr (std::is_same_v<T, double>)
      result.push_back(value);
    else
      result.push_back(static_cast<double>(static_cast<float>(value)));
  }
  return result;
}

template <class T>
class VendorGemmOf : public VendorGemm {
 protected:
  /// Checks column-major matrices with `padding` elements between columns.
  void compare(Call call, std::uint64_t algorithm) {
    SCOPED_TRACE(::testing::Message() << "algorithm " << algorithm << ", transposed " << call.transpose_a
                                      << call.transpose_b << ", epilogue " << call.epilogue);
    call.in = call.out = kType<T>;
    if (std::is_same_v<T, double>) call.compute = CUBLAS_COMPUTE_64F, call.scale = CUDA_R_64F;
    const bool flips_a = call.transpose_a != CUBLAS_OP_N, flips_b = call.transpose_b != CUBLAS_OP_N;
    const std::int64_t lda = (flips_a ? call.k : call.m) + call.padding,
                       ldb = (flips_b ? call.n : call.k) + call.padding, ldd = call.m + call.padding;
    const auto a = integers<T>(static_cast<std::size_t>(lda * (flips_a ? call.m : call.k)), 1),
               b = integers<T>(static_cast<std::size_t>(ldb * (flips_b ? call.k : call.n)), 2),
               before = integers<T>(static_cast<std::size_t>(ldd * call.n), 3),
               bias = integers<T>(static_cast<std::size_t>(call.m), 4);
    const auto exact_a = as_doubles(a), exact_b = as_doubles(b), exact_bias = as_doubles(bias);
    std::vector<double> expected = as_doubles(before);
    for (std::int64_t row = 0; row < call.m; ++row)
      for (std::int64_t col = 0; col < call.n; ++col) {
        double sum = 0;
        for (std::int64_t i = 0; i < call.k; ++i)
          sum += exact_a[static_cast<std::size_t>(flips_a ? row * lda + i : i * lda + row)] *
                 exact_b[static_cast<std::size_t>(flips_b ? i * ldb + col : col * ldb + i)];
        double& d = expected[static_cast<std::size_t>(col * ldd + row)];
        d = 2 * sum + 3 * d;
        if ((call.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) d += exact_bias[static_cast<std::size_t>(row)];
        if ((call.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) d = std::max(d, 0.0);
      }
    const Numbers<T> gpu_a(*this->gpu_, a), gpu_b(*this->gpu_, b), gpu_d(*this->gpu_, before),
        gpu_bias(*this->gpu_, bias);
    const std::size_t bytes =
        static_cast<std::size_t>(call.m * call.n) * 2 * (std::is_same_v<T, double> ? 8 : 4);
    const Numbers<char> workspace(*this->gpu_, bytes);
    call.bias = gpu_bias.data();
    EXPECT_EQ(this->multiply(call, gpu_a.data(), gpu_b.data(), gpu_d.data(), algorithm, 2, 3,
                             workspace.data(), bytes),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(as_doubles(gpu_d.values()), expected);
  }
};

using VendorGemmOfTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(VendorGemmOf, VendorGemmOfTypes);

TYPED_TEST(VendorGemmOf, IsRightWithEveryAlgorithm) {
  for (const auto transpose_a : {CUBLAS_OP_N, CUBLAS_OP_T})
    for (const auto transpose_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      this->compare(
          {.m = 3, .n = 5, .k = 7, .transpose_a = transpose_a, .transpose_b = transpose_b, .padding = 2},
          kPlain);
      this->compare({.m = 3, .n = 5, .k = 7, .transpose_a = transpose_a, .transpose_b = transpose_b}, kSplit);
      this->compare({.m = 8, .n = 8, .k = 16, .transpose_a = transpose_a, .transpose_b = transpose_b},
                    kAligned);
    }
}

TYPED_TEST(VendorGemmOf, SupportsEpiloguesExceptForDoubles) {
  if (std::is_same_v<TypeParam, double>) return;
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS})
    this->compare({.m = 3, .n = 5, .k = 7, .epilogue = epilogue}, kPlain);
}

TEST_F(VendorGemm, RoundsInputsToTf32IfRequested) {
  const Call exact{.m = 1, .n = 1, .k = 1},
      rounded{.m = 1, .n = 1, .k = 1, .compute = CUBLAS_COMPUTE_32F_FAST_TF32};
  const Numbers<float> a(*gpu_, Floats{1 + 0x1p-12f}), b(*gpu_, Floats{1.0f}), d(*gpu_, 1);
  EXPECT_EQ(multiply(exact, a.data(), b.data(), d.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.values()[0], 1 + 0x1p-12f);
  EXPECT_EQ(multiply(rounded, a.data(), b.data(), d.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.values()[0], 1);
}

TEST_F(VendorGemm, ListsAlgorithmsByAlignmentAndWorkspace) {
  const std::size_t split = 4 * 8 * 2 * sizeof(float);
  EXPECT_EQ(heuristics({.workspace_limit = split}).algorithms, (std::vector{kAligned, kSplit, kPlain}));
  EXPECT_EQ(heuristics({.workspace_limit = split}).workspaces, (std::vector<std::size_t>{0, split, 0}));
  EXPECT_EQ(heuristics({.workspace_limit = split}, 2).algorithms, (std::vector{kAligned, kSplit}));
  EXPECT_EQ(heuristics({.workspace_limit = split - 1}).algorithms, (std::vector{kAligned, kPlain}));
  EXPECT_EQ(heuristics({.alignment = 8}).algorithms, std::vector{kPlain});
  EXPECT_EQ(heuristics({.padding = 1}).algorithms, std::vector{kPlain}) << "columns are misaligned";
  set(VendorSettings{.cublaslt = {.absent = {kPlain, kAligned}}});
  EXPECT_EQ(heuristics({}).status, CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(VendorGemm, RejectsInvalidTypeCombinations) {
  EXPECT_EQ(heuristics({.scale = CUDA_R_64F}).status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in_b = CUDA_R_16F}).status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in_c = CUDA_R_16F}).status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.scale = CUDA_R_64F, .compute = CUBLAS_COMPUTE_64F}).status,
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in = CUDA_R_16F, .out = CUDA_R_16BF}).status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in = CUDA_R_16F, .out = CUDA_R_32F}).status, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(heuristics({.in = CUDA_R_64F, .out = CUDA_R_64F}).status, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in = CUDA_R_16F, .out = CUDA_R_16F, .compute = CUBLAS_COMPUTE_32F_FAST_TF32}).status,
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(heuristics({.in = CUDA_R_64F,
                        .out = CUDA_R_64F,
                        .scale = CUDA_R_64F,
                        .compute = CUBLAS_COMPUTE_64F,
                        .epilogue = CUBLASLT_EPILOGUE_RELU})
                .status,
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(VendorGemm, RejectsMismatchedShapes) {
  EXPECT_EQ(heuristics({.d_rows = 5}).status, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(heuristics({.padding = -1}).status, CUBLAS_STATUS_INVALID_VALUE) << "columns overlap";
  EXPECT_EQ(heuristics({.m = 0}).status, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(heuristics({.more_rows_of_b = 1}).status, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(heuristics({}, 0).status, CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(VendorGemm, RejectsInvalidBias) {
  const Call call{.m = 4, .n = 8, .k = 16, .epilogue = CUBLASLT_EPILOGUE_BIAS};
  EXPECT_EQ(heuristics(call).status, CUBLAS_STATUS_INVALID_VALUE) << "no pointer";
  const Numbers<float> a(*gpu_, 64), b(*gpu_, 128), d(*gpu_, 32), bias(*gpu_, 4);
  const auto with = [&](const void* pointer, std::optional<cudaDataType_t> type = {}) {
    Call changed = call;
    changed.bias = pointer;
    changed.bias_type = type;
    return multiply(changed, a.data(), b.data(), d.data());
  };
  EXPECT_EQ(with(bias.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(bias.data(), CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(bias.data(), CUDA_R_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with(bias.data() + 1), CUBLAS_STATUS_INVALID_VALUE) << "shorter than a column";
}

TEST_F(VendorGemm, RejectsAttributesOfWrongSizeOrValue) {
  const Objects objects{Call{}};
  const std::int32_t transpose = CUBLAS_OP_T, nonsense = 77;
  const auto set_as = [&](const void* value, std::size_t bytes) {
    return cublasLtMatmulDescSetAttribute(objects.operation, CUBLASLT_MATMUL_DESC_TRANSA, value, bytes);
  };
  EXPECT_EQ(set_as(&transpose, 4), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(set_as(&transpose, 8), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set_as(nullptr, 4), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set_as(&nonsense, 4), CUBLAS_STATUS_INVALID_VALUE);
  const std::uint32_t epilogue = 77;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(objects.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue),
            CUBLAS_STATUS_INVALID_VALUE);
  const std::uint32_t limit = 0;
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(objects.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &limit, sizeof limit),
            CUBLAS_STATUS_INVALID_VALUE)
      << "it has eight bytes";
  const std::uint32_t alignment = 12;
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                objects.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment),
            CUBLAS_STATUS_INVALID_VALUE)
      << "not a power of two";
}

TEST_F(VendorGemm, RejectsInvalidPointers) {
  const Numbers<float> a(*gpu_, 65), b(*gpu_, 128), d(*gpu_, 32);
  std::vector<float> host(64);
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data(), kAligned), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply({}, a.data() + 1, b.data(), d.data(), kPlain), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply({}, a.data() + 1, b.data(), d.data(), kAligned), CUBLAS_STATUS_INVALID_VALUE)
      << "misaligned";
  EXPECT_EQ(multiply({}, a.data() + 2, b.data(), d.data(), kPlain), CUBLAS_STATUS_INVALID_VALUE)
      << "too short";
  EXPECT_EQ(multiply({}, nullptr, b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply({}, host.data(), b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE) << "host memory";
  EXPECT_EQ(multiply({}, a.data(), b.data(), b.data()), CUBLAS_STATUS_INVALID_VALUE) << "D is B";
  const void* const odd = reinterpret_cast<const char*>(a.data()) + 2;
  EXPECT_EQ(multiply({}, odd, b.data(), d.data(), kPlain), CUBLAS_STATUS_INVALID_VALUE)
      << "not aligned to an element";
  EXPECT_EQ(multiply({.m = 2, .n = 1, .k = 1, .more_padding_of_c = 1}, a.data(), b.data(), d.data()),
            CUBLAS_STATUS_INVALID_VALUE)
      << "C is D with another layout";
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data(), 999), CUBLAS_STATUS_INVALID_VALUE)
      << "unknown algorithm";
}

TEST_F(VendorGemm, RejectsTooSmallWorkspace) {
  const Numbers<float> a(*gpu_, 64), b(*gpu_, 128), d(*gpu_, 32);
  const std::size_t bytes = 4 * 8 * 2 * sizeof(float);
  const Numbers<char> workspace(*gpu_, bytes);
  const auto split = [&](void* memory, std::size_t size) {
    return multiply({}, a.data(), b.data(), d.data(), kSplit, 1, 0, memory, size);
  };
  EXPECT_EQ(split(workspace.data(), bytes), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(split(workspace.data(), bytes - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(split(workspace.data() + 16, bytes), CUBLAS_STATUS_INVALID_VALUE) << "past the end";
  EXPECT_EQ(split(nullptr, bytes), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data(), kPlain, 1, 0, d.data(), 16),
            CUBLAS_STATUS_INVALID_VALUE)
      << "D itself";
  EXPECT_EQ(split(nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(VendorGemm, RejectsInvalidObjects) {
  EXPECT_EQ(cublasLtMatmulDescCreate(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDesc_t operation = nullptr;
  EXPECT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_INVALID_VALUE);
  const std::int32_t transpose = CUBLAS_OP_T;
  EXPECT_EQ(
      cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
      CUBLAS_STATUS_INVALID_VALUE);
  const Numbers<float> array(*gpu_, 256);
  const Objects objects{Call{}};
  const float one = 1;
  EXPECT_EQ(cublasLtMatmul(handle_, objects.operation, &one, array.data(), objects.a, array.data() + 64,
                           objects.b, nullptr, array.data() + 192, objects.c, array.data() + 192, objects.d,
                           nullptr, nullptr, 0, gpu_->stream.handle()),
            CUBLAS_STATUS_INVALID_VALUE)
      << "no beta";
}

TEST_F(VendorGemm, RejectsOtherGpusAndDestroyedHandles) {
  const Numbers<float> a(*gpu_, 64), b(*gpu_, 128), d(*gpu_, 32);
  Gpu other(1);
  other.stream.make_current();
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE)
      << "another GPU is current";
  cublasLtHandle_t second = nullptr;
  EXPECT_EQ(cublasLtCreate(&second), CUBLAS_STATUS_SUCCESS);
  gpu_->stream.make_current();
  std::swap(handle_, second);
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE)
      << "the handle belongs to another GPU";
  std::swap(handle_, second);
  EXPECT_EQ(cublasLtDestroy(second), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(second), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(VendorGemm, RunsInStreamOrderAndInGraphs) {
  const ScopedSettings settings(with(Streams::random, 1));
  const Call one{.m = 1, .n = 1, .k = 1};
  const Numbers<float> a(*gpu_, Floats{3.0f}), b(*gpu_, Floats{5.0f}), d(*gpu_, Floats{0.0f});
  const cudaStream_t stream = gpu_->stream.handle();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(multiply(one, a.data(), b.data(), d.data(), kPlain, 1, 1), CUBLAS_STATUS_SUCCESS);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 3; ++replay) CUDA_CHECK(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(multiply(one, a.data(), b.data(), d.data(), kPlain, 1, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.values(), Floats{60});
  EXPECT_EQ(vendor_counts().gemms, (std::map<std::uint64_t, int>{{kPlain, 4}}));
  CUDA_CHECK(cudaGraphExecDestroy(executable));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_F(VendorGemm, FollowsTheSettings) {
  const ScopedVendorSettings settings({.cublaslt = {.version = 130500, .failing = {kPlain}}});
  const Numbers<float> a(*gpu_, 64), b(*gpu_, 128), d(*gpu_, 32);
  EXPECT_EQ(cublasLtGetVersion(), 130500u);
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data(), kPlain), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(multiply({}, a.data(), b.data(), d.data(), kAligned), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace convoy::emulator
