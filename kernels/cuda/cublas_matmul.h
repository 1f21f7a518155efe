// Products by cuBLASLt, in row-major terms. Private to kernels/cuda.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include "kernels/cuda/lru_cache.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/view.h"

namespace convoy::cuda {

/// c [m, n] = act(op(a) [m, k] op(b) [k, n] + bias [n]), all row-major: as much of a product as decides which
/// algorithm computes it. No size is 0.
struct Product {
  DType dtype = DType::f32;
  bool tf32 = false;  // f32 may round factors to TF32
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool relu = false;
  /// Of the addresses, in bytes: powers of two. 0 for the bias: there is none.
  std::uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0, bias_alignment = 0;

  friend auto operator<=>(const Product&, const Product&) = default;
};

/// To which power of two an address is aligned; at most 256, which the library assumes where nobody says, and
/// beyond which no kernel asks.
std::uint32_t alignment_of(const void* address);

/// The arrays of one Product. bias is null where it has none.
struct Operands {
  const void* a;
  const void* b;
  const void* bias;
  void* c;
};

template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
template <class Pointer, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroyer<kDestroy>>;

/// A Product as the library describes it, in host memory: needs no GPU.
///
/// The library's matrices are column-major, and a row-major array [rows, columns] is, byte for byte, the
/// column-major matrix columns x rows: its transpose. So the library is asked for c^T = op(b)^T op(a)^T: b
/// comes first, sizes swap places, and an operand is transposed for the library exactly where it is for us.
/// c^T has n rows, so that the library's bias, one number a row, is ours, one a column.
class ProductDescriptors {
 public:
  explicit ProductDescriptors(const Product& product);

  /// The heuristics look at how the address is aligned, the product reads from it.
  void set_bias(const void* bias);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t c() const { return c_.get(); }

 private:
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  static Layout layout(DType dtype, std::int64_t rows, std::int64_t columns);

  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_;
  Layout a_, b_, c_;
};

/// What the heuristics may choose from for a Product: see the source.
Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_for(
    const Product& product, std::size_t workspace_limit);

/// The library on one stream, and what it was asked for last. Made on first use (CudaStream::local), which
/// had better not be while the stream records work: the library sets itself up on the GPU then.
class CublasLt {
 public:
  /// What a product may take of device memory while it runs: what NVIDIA recommends for Hopper. Older GPUs'
  /// algorithms ask for less; each takes what it needs and no more.
  static constexpr std::size_t kWorkspaceLimit = std::size_t{32} << 20;
  /// A step of the largest network here multiplies fewer shapes than that.
  static constexpr std::size_t kCapacity = 64;

  explicit CublasLt(CudaStream& stream, std::size_t workspace_limit = kWorkspaceLimit);

  /// Enqueues c = the product, or c += with Mode::add. False, and nothing done, where the library has no
  /// algorithm for it. `stream` is the constructor's.
  ///
  /// The algorithm is always the first that the heuristics name, which depends on the Product, the GPU and
  /// the library's version alone; and an algorithm adds in an order of its own, always the same. So results
  /// repeat bit for bit.
  bool multiply(CudaStream& stream, const Product& product, const Operands& operands, Mode mode);

  /// How many products are kept.
  std::size_t size() const { return plans_.size(); }

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algo;
    std::size_t workspace_bytes;
  };
  struct Plan {
    ProductDescriptors descriptors;
    std::optional<Algorithm> algorithm;  // none: the library has none
  };
  /// The kept plan or a new one, set to this bias.
  const Plan& plan_for(const Product& product, const void* bias);
  std::optional<Algorithm> first_algorithm(const Product& product,
                                           const ProductDescriptors& descriptors) const;

  std::size_t workspace_limit_;
  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  LruCache<Product, Plan> plans_{kCapacity};
};

}  // namespace convoy::cuda
