// The descriptors of GEMMs for cuBLASLt, read back from the real library. This needs no GPU.
#include <gtest/gtest.h>

#include <vector>

#include "convoy/kernels/cuda/cublas/matmul.h"

namespace convoy::kernels::cuda {
namespace {

template <class T>
T attribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which) {
  T value{};
  std::size_t written = 0;
  CUBLAS_CHECK(cublasLtMatmulDescGetAttribute(operation, which, &value, sizeof value, &written));
  EXPECT_EQ(written, sizeof value);
  return value;
}

template <class T>
T attribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which) {
  T value{};
  std::size_t written = 0;
  CUBLAS_CHECK(cublasLtMatrixLayoutGetAttribute(layout, which, &value, sizeof value, &written));
  EXPECT_EQ(written, sizeof value);
  return value;
}

template <class T>
T attribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which) {
  T value{};
  std::size_t written = 0;
  CUBLAS_CHECK(cublasLtMatmulPreferenceGetAttribute(preference, which, &value, sizeof value, &written));
  EXPECT_EQ(written, sizeof value);
  return value;
}

/// The layout of a column-major matrix without padding.
void expect_matrix(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                   std::uint64_t columns) {
  EXPECT_EQ(attribute<std::uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE), static_cast<std::uint32_t>(type));
  EXPECT_EQ(attribute<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER), CUBLASLT_ORDER_COL);
  EXPECT_EQ(attribute<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS), rows);
  EXPECT_EQ(attribute<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS), columns);
  EXPECT_EQ(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD), static_cast<std::int64_t>(rows));
  EXPECT_EQ(attribute<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 1);
}

// c [2, 3] = a [2, 5] b [5, 3] is c^T [3, 2] = b^T [3, 5] a^T [5, 2].
TEST(CublasDescriptors, DescribeRowMajorMatricesAsTransposes) {
  const GemmProblem problem{.dtype = DType::f32, .m = 2, .n = 3, .k = 5};
  const GemmDescriptors plain(problem);
  expect_matrix(plain.b(), CUDA_R_32F, 3, 5);
  expect_matrix(plain.a(), CUDA_R_32F, 5, 2);
  expect_matrix(plain.c(), CUDA_R_32F, 3, 2);
}

TEST(CublasDescriptors, DescribeBatchesOfConsecutiveMatrices) {
  const GemmProblem problem{.dtype = DType::f32, .batch = 4, .shares_b = true, .m = 2, .n = 3, .k = 5};
  const GemmDescriptors described(problem);
  for (const auto& [layout, distance] :
       {std::pair{described.a(), 10}, {described.b(), 0}, {described.c(), 6}}) {
    EXPECT_EQ(attribute<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 4);
    EXPECT_EQ(attribute<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET), distance);
  }
}

TEST(CublasDescriptors, DescribeTransposedOperands) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "transposed " << ta << tb);
      const GemmDescriptors described(
          {.dtype = DType::bf16, .m = 2, .n = 3, .k = 5, .transpose_a = ta, .transpose_b = tb});
      expect_matrix(described.a(), CUDA_R_16BF, ta ? 2 : 5, ta ? 5 : 2);
      expect_matrix(described.b(), CUDA_R_16BF, tb ? 5 : 3, tb ? 3 : 5);
      expect_matrix(described.c(), CUDA_R_16BF, 3, 2);
      EXPECT_EQ(attribute<std::int32_t>(described.operation(), CUBLASLT_MATMUL_DESC_TRANSA),
                tb ? CUBLAS_OP_T : CUBLAS_OP_N);
      EXPECT_EQ(attribute<std::int32_t>(described.operation(), CUBLASLT_MATMUL_DESC_TRANSB),
                ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    }
}

TEST(CublasDescriptors, UseComputeTypeOfElementType) {
  struct Types {
    DType dtype;
    bool tf32;
    cudaDataType_t data, scale;
    cublasComputeType_t compute;
  };
  const Types kTypes[] = {
      {DType::f64, false, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
      {DType::f64, true, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
      {DType::f32, false, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
      {DType::f32, true, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
      {DType::f16, true, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
      {DType::bf16, true, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
  };
  for (const Types& types : kTypes) {
    SCOPED_TRACE(::testing::Message() << to_string(types.dtype) << ", tf32 " << types.tf32);
    const GemmDescriptors described(
        {.dtype = types.dtype, .tf32 = types.tf32, .m = 4, .n = 4, .k = 4, .bias_alignment = 16});
    expect_matrix(described.a(), types.data, 4, 4);
    const cublasLtMatmulDesc_t operation = described.operation();
    EXPECT_EQ(attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), types.compute);
    EXPECT_EQ(attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_SCALE_TYPE), types.scale);
    EXPECT_EQ(attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE), types.data);
    EXPECT_EQ(attribute<std::int32_t>(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE),
              CUBLASLT_POINTER_MODE_HOST);
  }
}

TEST(CublasDescriptors, DescribeBiasAndRelu) {
  const auto epilogue = [](std::uint32_t bias_alignment, bool relu) {
    const GemmDescriptors described({.m = 4, .n = 4, .k = 4, .relu = relu, .bias_alignment = bias_alignment});
    return attribute<std::uint32_t>(described.operation(), CUBLASLT_MATMUL_DESC_EPILOGUE);
  };
  EXPECT_EQ(epilogue(0, false), std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  EXPECT_EQ(epilogue(0, true), std::uint32_t{CUBLASLT_EPILOGUE_RELU});
  EXPECT_EQ(epilogue(4, false), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(epilogue(4, true), std::uint32_t{CUBLASLT_EPILOGUE_RELU_BIAS});

  GemmDescriptors described({.m = 4, .n = 4, .k = 4, .bias_alignment = 4});
  const float bias[4] = {};
  described.set_bias(bias);
  EXPECT_EQ(attribute<const void*>(described.operation(), CUBLASLT_MATMUL_DESC_BIAS_POINTER), bias);
}

TEST(CublasDescriptors, PreferencesHaveLimits) {
  const auto preference = preference_for(
      {.dtype = DType::f16, .m = 4, .n = 4, .k = 4, .a_alignment = 2, .b_alignment = 8, .c_alignment = 256},
      12345);
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t which) {
    return attribute<std::uint32_t>(preference.get(), which);
  };
  EXPECT_EQ(attribute<std::uint64_t>(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 12345u);
  EXPECT_EQ(attribute<std::uint32_t>(preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_EQ(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 8u);  // cuBLASLt's first operand is b
  EXPECT_EQ(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 2u);
  EXPECT_EQ(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 256u);
  EXPECT_EQ(alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 256u);
}

TEST(CublasDescriptors, FailedCallReportsCallAndReason) {
  try {
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 0));
    FAIL() << "not refused";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(
        text.find("cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 0) failed"),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("(cublas_library_test.cpp:"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace convoy::kernels::cuda
