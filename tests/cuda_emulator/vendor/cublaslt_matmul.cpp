#include "tests/cuda_emulator/vendor/cublaslt_matmul.h"

#include <algorithm>

#include "tests/cuda_emulator/vendor/vendor_sums.h"

namespace convoy::emulator {
namespace {

using namespace cublaslt_algorithm;  // NOLINT: the algorithm constants

constexpr std::size_t kVectorBytes = 16;  // read by the aligned algorithm at a time

void require(bool condition, const char* why, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
  if (!condition) throw CublasRefusal{status, why};
}

void check_layout(const cublasLtMatrixLayoutOpaque_t& layout) {
  require(layout.rows > 0 && layout.cols > 0, "a matrix has no elements");
  require(layout.ld >= 0 && static_cast<std::uint64_t>(layout.ld) >= layout.rows,
          "the leading dimension is below the number of rows");
  require(layout.batch > 0 && layout.batch_offset >= 0, "the batch is empty, or its offset is negative");
}

/// Checks the types against the table in the documentation of cublasLtMatmul().
void check_types(const Gemm& gemm) {
  const auto supported = [](bool condition, const char* why) {
    require(condition, why, CUBLAS_STATUS_NOT_SUPPORTED);
  };
  const cudaDataType_t in = gemm.a.type, out = gemm.d.type;
  supported(gemm.b.type == in, "A and B have different types");
  supported(gemm.c.type == out, "C and D have different types");
  const cublasComputeType_t compute = gemm.operation.compute;
  if (compute == CUBLAS_COMPUTE_64F) {
    supported(in == CUDA_R_64F && out == CUDA_R_64F && gemm.operation.scale == CUDA_R_64F,
              "double precision needs double inputs, outputs and scale");
    supported(gemm.operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT, "double precision has no epilogues");
    return;
  }
  supported(gemm.operation.scale == CUDA_R_32F, "single precision needs a single-precision scale");
  supported(in != CUDA_R_64F && (out == in || out == CUDA_R_32F), "these types are not supported");
  supported(compute != CUBLAS_COMPUTE_32F_FAST_TF32 || in == CUDA_R_32F, "tf32 needs f32 inputs");
}

void check_bias(const Gemm& gemm) {
  if (!gemm.has_bias()) return;
  require(gemm.operation.bias != nullptr, "an epilogue has a bias but no pointer to it");
  const std::int32_t type = gemm.operation.bias_type;
  require(type == -1 || type == static_cast<std::int32_t>(gemm.d.type),
          "the bias has another type than the output", CUBLAS_STATUS_NOT_SUPPORTED);
}

bool is_multiple(std::size_t bytes) { return bytes % kVectorBytes == 0; }

bool is_in_vectors(const cublasLtMatrixLayoutOpaque_t& layout) {
  const std::size_t size = size_of(layout.element());
  return is_multiple(static_cast<std::size_t>(layout.ld) * size) &&
         is_multiple(static_cast<std::size_t>(layout.batch_offset) * size);
}

Summation summation_of(std::uint64_t algorithm) {
  if (algorithm == kAligned) return {.parts = 2, .descending = true};
  if (algorithm == kSplit) return {.parts = 2};
  return {};
}

template <class Sum>
std::size_t partials_of(const Gemm& gemm) {
  return static_cast<std::size_t>(gemm.m * gemm.n) * sizeof(Sum) * 2;
}

/// Returns the rows of op(A), or the columns of op(B), each as k consecutive values.
template <class Sum>
std::vector<Sum> read(const void* array, const cublasLtMatrixLayoutOpaque_t& layout, bool columns_are_sums,
                      bool to_tf32) {
  std::vector<Sum> values(layout.rows * layout.cols);
  const auto rows = static_cast<std::int64_t>(layout.rows), cols = static_cast<std::int64_t>(layout.cols);
  for (std::int64_t col = 0; col < cols; ++col) {
    for (std::int64_t row = 0; row < rows; ++row) {
      auto value = load<Sum>(layout.element(), array, col * layout.ld + row);
      if (to_tf32) value = static_cast<Sum>(rounded_to_tf32(static_cast<float>(value)));
      values[static_cast<std::size_t>(columns_are_sums ? col * rows + row : row * cols + col)] = value;
    }
  }
  return values;
}

template <class Sum>
void run_in(const Gemm& gemm, std::uint64_t algorithm, Sum alpha, Sum beta, const Matrices& matrices,
            void* workspace) {
  const cublasLtMatmulDescOpaque_t& operation = gemm.operation;
  const bool to_tf32 = operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const auto a = read<Sum>(matrices.a, gemm.a, operation.transpose_a != CUBLAS_OP_N, to_tf32);
  const auto b = read<Sum>(matrices.b, gemm.b, operation.transpose_b == CUBLAS_OP_N, to_tf32);
  const auto m = static_cast<std::size_t>(gemm.m), n = static_cast<std::size_t>(gemm.n),
             k = static_cast<std::size_t>(gemm.k);
  const Summation order = summation_of(algorithm);
  std::vector<Sum> own_partials;
  if (workspace == nullptr) own_partials.resize(m * n * static_cast<std::size_t>(order.parts));
  Sums<Sum> sums(order, m * n, workspace != nullptr ? static_cast<Sum*>(workspace) : own_partials.data());
  for (std::size_t col = 0; col < n; ++col)
    for (std::size_t row = 0; row < m; ++row)
      sums.set(col * m + row, a.data() + row * k, b.data() + col * k, k);
  std::vector<Sum> results(m * n);
  sums.finish(results.data());
  const Element type = gemm.d.element();
  for (std::size_t col = 0; col < n; ++col) {
    for (std::size_t row = 0; row < m; ++row) {
      const auto at = [&](const cublasLtMatrixLayoutOpaque_t& layout) {
        return static_cast<std::int64_t>(col) * layout.ld + static_cast<std::int64_t>(row);
      };
      Sum value = alpha * results[col * m + row];
      if (beta != 0) value += beta * load<Sum>(type, matrices.c, at(gemm.c));
      if (gemm.has_bias()) value += load<Sum>(type, operation.bias, static_cast<std::int64_t>(row));
      if (gemm.has_relu() && value < 0) value = 0;
      store(type, matrices.d, at(gemm.d), value);
    }
  }
}

}  // namespace

Gemm make_gemm(const cublasLtMatmulDescOpaque_t& operation, const cublasLtMatrixLayoutOpaque_t& a,
               const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
               const cublasLtMatrixLayoutOpaque_t& d) {
  for (const cublasLtMatrixLayoutOpaque_t* const layout : {&a, &b, &c, &d}) check_layout(*layout);
  const bool transposes_a = operation.transpose_a != CUBLAS_OP_N,
             transposes_b = operation.transpose_b != CUBLAS_OP_N;
  Gemm made{.operation = operation, .a = a, .b = b, .c = c, .d = d};
  made.m = transposes_a ? a.cols : a.rows;
  made.k = transposes_a ? a.rows : a.cols;
  made.n = transposes_b ? b.rows : b.cols;
  require((transposes_b ? b.cols : b.rows) == made.k, "the columns of op(A) do not match the rows of op(B)");
  for (const cublasLtMatrixLayoutOpaque_t* const layout : {&c, &d})
    require(layout->rows == made.m && layout->cols == made.n, "the shape of C or D does not match the GEMM");
  for (const cublasLtMatrixLayoutOpaque_t* const layout : {&b, &c, &d})
    require(layout->batch == a.batch, "the batch counts of the matrices differ");
  require(d.batch == 1 || static_cast<std::size_t>(d.batch_offset) >= static_cast<std::size_t>(d.ld) * d.cols,
          "the matrices of D overlap");
  require(d.batch == 1 || operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT,
          "this emulator supports no epilogue of a batch", CUBLAS_STATUS_NOT_SUPPORTED);
  check_types(made);
  check_bias(made);
  return made;
}

std::vector<Algorithm> algorithms(const Gemm& gemm, const cublasLtMatmulPreferenceOpaque_t& limits) {
  const bool is_aligned = is_multiple(limits.alignment_a) && is_multiple(limits.alignment_b) &&
                          is_multiple(limits.alignment_c) && is_multiple(limits.alignment_d) &&
                          is_in_vectors(gemm.a) && is_in_vectors(gemm.b) && is_in_vectors(gemm.c) &&
                          is_in_vectors(gemm.d);
  const std::size_t partials =
      gemm.operation.compute == CUBLAS_COMPUTE_64F ? partials_of<double>(gemm) : partials_of<float>(gemm);
  const bool may_split = (limits.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  std::vector<Algorithm> all;
  if (is_aligned) all.push_back({.number = kAligned});
  if (may_split && partials <= limits.workspace_bytes)
    all.push_back({.number = kSplit, .workspace_bytes = partials});
  all.push_back({.number = kPlain});
  std::erase_if(all, [](const Algorithm& algorithm) {
    return vendor_state().settings.cublaslt.absent.contains(algorithm.number);
  });
  return all;
}

void run(const Gemm& gemm, std::uint64_t algorithm, double alpha, double beta, const Matrices& matrices,
         void* workspace) {
  ++vendor_state().counts.gemms[algorithm];
  for (std::int32_t i = 0; i < gemm.d.batch; ++i) {
    const auto moved = [i](const void* array, const cublasLtMatrixLayoutOpaque_t& layout) {
      return static_cast<const std::byte*>(array) +
             static_cast<std::size_t>(i * layout.batch_offset) * size_of(layout.element());
    };
    const Matrices one{.a = moved(matrices.a, gemm.a),
                       .b = moved(matrices.b, gemm.b),
                       .c = moved(matrices.c, gemm.c),
                       .d = static_cast<std::byte*>(matrices.d) +
                            (moved(matrices.d, gemm.d) - static_cast<const std::byte*>(matrices.d))};
    if (gemm.operation.compute == CUBLAS_COMPUTE_64F)
      run_in<double>(gemm, algorithm, alpha, beta, one, workspace);
    else
      run_in<float>(gemm, algorithm, static_cast<float>(alpha), static_cast<float>(beta), one, workspace);
  }
}

}  // namespace convoy::emulator

using convoy::emulator::Element;

Element cublasLtMatrixLayoutOpaque_t::element() const {
  switch (type) {
    case CUDA_R_16F: return Element::f16;
    case CUDA_R_16BF: return Element::bf16;
    case CUDA_R_32F: return Element::f32;
    case CUDA_R_64F: break;
  }
  return Element::f64;
}

std::size_t cublasLtMatrixLayoutOpaque_t::bytes() const {
  const std::uint64_t last = (cols - 1) * static_cast<std::uint64_t>(ld) + rows;
  const auto offset = static_cast<std::uint64_t>((batch - 1) * batch_offset);
  return static_cast<std::size_t>(offset + last) * size_of(element());
}
