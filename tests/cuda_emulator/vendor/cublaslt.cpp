// The functions of include/cublasLt.h.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "emulator/runtime/runtime.h"
#include "tests/cuda_emulator/vendor/cublaslt_matmul.h"

struct cublasLtContext {
  int gpu = 0;
};

namespace convoy::emulator {
namespace {

struct Objects {
  ObjectRegistry<cublasLtContext> handles;
  ObjectRegistry<cublasLtMatmulDescOpaque_t> operations;
  ObjectRegistry<cublasLtMatrixLayoutOpaque_t> layouts;
  ObjectRegistry<cublasLtMatmulPreferenceOpaque_t> preferences;
};
Objects& objects() {
  static Objects& all = *new Objects;  // never destroyed, like the driver
  return all;
}

void require(bool condition, const char* why, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
  if (!condition) throw CublasRefusal{status, why};
}

template <class T>
const T& find_object(const ObjectRegistry<T>& all, const void* object) {
  const T* const found = all.find(object);
  require(found != nullptr, "not an object of this type, or it was destroyed");
  return *found;
}

/// Calls `f` and returns its status. The reason of a refusal is visible only in a debugger: cuBLASLt has no
/// call that returns it.
cublasStatus_t status_of(const std::function<void()>& f) {
  try {
    f();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const CublasRefusal& refusal) {
    return refusal.status;
  }
}

cublasStatus_t locked(const std::function<void()>& f) {
  const std::lock_guard lock(Driver::get().lock());
  return status_of(f);
}

template <class T>
cublasStatus_t create(ObjectRegistry<T>& all, T** object, const T& made) {
  return locked([&] {
    require(object != nullptr, "the pointer for the object is null");
    *object = all.add(made);
  });
}

template <class T>
cublasStatus_t destroy(ObjectRegistry<T>& all, const T* object) {
  return locked([&] { require(all.remove(object), "not an object of this type, or it was destroyed"); });
}

/// Copies an attribute value, which must have exactly the size of T.
template <class T>
void set_value(T& to, const void* value, std::size_t bytes) {
  require(value != nullptr && bytes == sizeof(T), "the value is null or has the wrong size");
  std::memcpy(&to, value, sizeof(T));
}

void check_operation(std::int32_t value) {
  require(value == CUBLAS_OP_N || value == CUBLAS_OP_T || value == CUBLAS_OP_C, "unknown operation");
}

void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const void* value,
         std::size_t bytes) {
  cublasLtMatmulDescOpaque_t changed = operation;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: set_value(changed.transpose_a, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: set_value(changed.transpose_b, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: set_value(changed.epilogue, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: set_value(changed.bias, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: set_value(changed.bias_type, value, bytes); break;
  }
  check_operation(changed.transpose_a);
  check_operation(changed.transpose_b);
  constexpr std::uint32_t kEpilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU,
                                          CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS};
  require(std::find(std::begin(kEpilogues), std::end(kEpilogues), changed.epilogue) != std::end(kEpilogues),
          "unknown epilogue");
  operation = changed;
}

void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
         std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: set_value(layout.batch, value, bytes); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: set_value(layout.batch_offset, value, bytes); break;
  }
}

void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, std::size_t bytes) {
  const auto set_alignment = [&](std::uint32_t& to) {
    std::uint32_t alignment = 0;
    set_value(alignment, value, bytes);
    require(std::has_single_bit(alignment), "an alignment must be a power of two");
    to = alignment;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set_value(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set_value(preference.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set_alignment(preference.alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set_alignment(preference.alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set_alignment(preference.alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set_alignment(preference.alignment_d);
  }
}

/// Returns the maximum power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* address) {
  std::uint32_t alignment = 256;
  while (!Span{.begin = address}.is_aligned(alignment)) alignment /= 2;
  return alignment;
}

Span checked(const Driver& driver, int gpu, const void* array, std::size_t bytes, std::size_t alignment) {
  const Span span{.begin = array, .bytes = bytes};
  require(span.is_aligned(alignment), "a pointer is misaligned");
  require(driver.memory.is_on(gpu, array, bytes), "an array is not within one block of the GPU's memory");
  return span;
}

void check_matrices(const Driver& driver, int gpu, const Gemm& gemm, const Matrices& matrices,
                    const Span& workspace) {
  const auto matrix = [&](const void* array, const cublasLtMatrixLayoutOpaque_t& layout) {
    return checked(driver, gpu, array, layout.bytes(), size_of(layout.element()));
  };
  const Span d = matrix(matrices.d, gemm.d);
  std::vector<Span> inputs = {matrix(matrices.a, gemm.a), matrix(matrices.b, gemm.b)};
  if (gemm.has_bias()) {
    const std::size_t size = size_of(gemm.d.element());
    inputs.push_back(checked(driver, gpu, gemm.operation.bias, gemm.m * size, size));
  }
  const Span c = matrix(matrices.c, gemm.c);
  const bool in_place = matrices.c == matrices.d;
  require(!in_place || gemm.c == gemm.d, "C is D but has another layout");
  if (!in_place) inputs.push_back(c);
  require(!d.overlaps(workspace), "D overlaps the workspace");
  for (const Span& input : inputs)
    require(!input.overlaps(d) && !input.overlaps(workspace), "an input overlaps D or the workspace");
}

/// Returns what a GEMM moves and computes. `adds` is whether it reads C.
LaunchCounts moved_by(const Gemm& gemm, bool adds) {
  const std::size_t bias_bytes = gemm.has_bias() ? gemm.m * size_of(gemm.d.element()) : 0;
  return {.operation = "gemm",
          .bytes_read = gemm.a.bytes() + gemm.b.bytes() + (adds ? gemm.c.bytes() : 0) + bias_bytes,
          .bytes_written = gemm.d.bytes(),
          .flops = 2 * gemm.m * gemm.n * gemm.k * static_cast<std::uint64_t>(gemm.d.batch),
          .element_bytes = size_of(gemm.a.element())};
}

/// Returns the algorithm that the caller chose, or the best one. Throws a CublasRefusal if it cannot compute
/// the GEMM.
Algorithm chosen(const Gemm& gemm, const cublasLtMatmulAlgo_t* algo, const Matrices& matrices,
                 std::size_t workspace_bytes) {
  const std::vector<Algorithm> possible = algorithms(gemm, {.workspace_bytes = workspace_bytes,
                                                            .alignment_a = alignment_of(matrices.a),
                                                            .alignment_b = alignment_of(matrices.b),
                                                            .alignment_c = alignment_of(matrices.c),
                                                            .alignment_d = alignment_of(matrices.d)});
  const auto found = std::find_if(possible.begin(), possible.end(), [&](const Algorithm& one) {
    return algo == nullptr || one.number == algo->data[0];
  });
  require(found != possible.end(), "the algorithm does not support these pointers, layouts and workspace");
  return *found;
}

double scalar(const void* value, cudaDataType_t type) {
  require(value != nullptr, "alpha or beta is a null pointer");
  if (type == CUDA_R_64F) return load<double>(Element::f64, value, 0);
  return load<float>(Element::f32, value, 0);
}

}  // namespace
}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

std::size_t cublasLtGetVersion() { return vendor_settings().cublaslt.version; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "a feature that this GPU does not have";
    case CUBLAS_STATUS_MAPPING_ERROR: return "an access to GPU memory failed";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "a license is missing";
  }
  return "an unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t error = on_gpu([&](Driver& driver, int gpu) {
    if (driver.forbids_allocation())
      return cudaErrorStreamCaptureUnsupported;  // the real library allocates memory
    *handle = objects().handles.add({.gpu = gpu});
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(objects().handles, handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create(objects().operations, operation, {.compute = compute, .scale = scale});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return destroy(objects().operations, operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  return locked([&] {
    find_object(objects().operations, operation);
    set(*operation, attribute, value, bytes);
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  return create(objects().layouts, layout, {.type = type, .rows = rows, .cols = cols, .ld = ld});
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  return locked([&] {
    find_object(objects().layouts, layout);
    set(*layout, attribute, value, bytes);
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(objects().layouts, layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(objects().preferences, preference, {});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(objects().preferences, preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return locked([&] {
    find_object(objects().preferences, preference);
    set(*preference, attribute, value, bytes);
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a_layout,
                                              cublasLtMatrixLayout_t b_layout,
                                              cublasLtMatrixLayout_t c_layout,
                                              cublasLtMatrixLayout_t d_layout,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  return locked([&] {
    const Objects& all = objects();
    find_object(all.handles, handle);
    require(requested > 0 && results != nullptr && returned != nullptr, "no space for results");
    const Gemm gemm = make_gemm(find_object(all.operations, operation), find_object(all.layouts, a_layout),
                                find_object(all.layouts, b_layout), find_object(all.layouts, c_layout),
                                find_object(all.layouts, d_layout));
    std::vector<Algorithm> found = algorithms(gemm, find_object(all.preferences, preference));
    require(!found.empty(), "no algorithm supports the GEMM", CUBLAS_STATUS_NOT_SUPPORTED);
    found.resize(std::min(found.size(), static_cast<std::size_t>(requested)));
    *returned = static_cast<int>(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      results[i] = {.algo = {{found[i].number}},
                    .workspaceSize = found[i].workspace_bytes,
                    .state = CUBLAS_STATUS_SUCCESS,
                    .wavesCount = 1.0f,
                    .reserved = {}};
    }
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  int gpu = 0;
  if (on_gpu([&](Driver&, int current) {
        gpu = current;
        return cudaSuccess;
      }) != cudaSuccess)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const cudaError_t error = on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    status = status_of([&] {
      const Objects& all = objects();
      require(find_object(all.handles, handle).gpu == gpu && held.gpu == gpu,
              "handle, stream and current GPU differ");
      const Gemm gemm = make_gemm(find_object(all.operations, operation), find_object(all.layouts, a_layout),
                                  find_object(all.layouts, b_layout), find_object(all.layouts, c_layout),
                                  find_object(all.layouts, d_layout));
      const double alpha_value = scalar(alpha, gemm.operation.scale);
      const double beta_value = scalar(beta, gemm.operation.scale);
      const Matrices matrices{.a = a, .b = b, .c = c, .d = d};
      constexpr std::size_t kWorkspaceAlignment = 16;
      const Span scratch = workspace_bytes > 0
                               ? checked(driver, gpu, workspace, workspace_bytes, kWorkspaceAlignment)
                               : Span{};
      check_matrices(driver, gpu, gemm, matrices, scratch);
      const Algorithm algorithm = chosen(gemm, algo, matrices, workspace_bytes);
      require(!vendor_state().settings.cublaslt.failing.contains(algorithm.number),
              "failure requested by the test", CUBLAS_STATUS_EXECUTION_FAILED);
      constexpr double kActualTime = -1;
      const auto work = [=] {
        void* const partials = algorithm.workspace_bytes > 0 ? workspace : nullptr;
        if (partials != nullptr) std::memset(partials, kUninitialized, workspace_bytes);
        run(gemm, algorithm.number, alpha_value, beta_value, matrices, partials);
      };
      compute(driver, held, kActualTime,
              {.work = work,
               .output = {.begin = d, .bytes = gemm.d.bytes()},
               .moved = moved_by(gemm, beta_value != 0)});
    });
    return cudaSuccess;
  });
  return error == cudaSuccess ? status : CUBLAS_STATUS_EXECUTION_FAILED;
}
