// Functions of kernels that emulator/include leaves out: mathematics, bits, atomics.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <type_traits>

// The compiler does not look from a launch into the kernel: it would remove one that dereferences a null
// pointer.
#undef __global__
#define __global__ __attribute__((noipa))
#define __constant__
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) alignas(bytes)
#define __grid_constant__
#define __cluster_dims__(...)  // cuemu passes them to the launches

// Mathematics. The fast variants have the precision of the others here.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1 / x; }

/// Returns an address of shared memory in its own address space, as inline PTX wants it.
inline std::size_t __cvta_generic_to_shared(const void* shared) {
  return convoy::emulator::shared_address(shared);
}

// Conversions, and the bits of numbers.
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (x >> bit & 1u) << (31 - bit);
  return result;
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
template <class T>
T __ldg(const T* address) {
  return *address;
}

// Barriers of a block that count, and fences.
namespace convoy::emulator {
/// Blocks the CUDA thread as block_barrier() does. Returns how many threads have passed true.
int block_count(bool predicate, Where where);
}  // namespace convoy::emulator
inline int __syncthreads_count(int predicate,
                               convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::block_count(predicate != 0, where);
}
inline int __syncthreads_or(int predicate,
                            convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::block_count(predicate != 0, where) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate,
                             convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::block_count(predicate == 0, where) == 0 ? 1 : 0;
}
inline void __threadfence_block() {}  // orders nothing between blocks
inline void __threadfence_system() { __threadfence(); }

// Atomic operations that emulator/include does not have. Each returns the old value.
#define CUEMU_ATOMIC(name, Types, result)                                                                  \
  template <class T>                                                                                       \
  requires(Types) __attribute__((noinline, no_sanitize("thread"))) T name(T* address,                      \
                                                                          std::type_identity_t<T> value) { \
    convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));                       \
    const T old = *address;                                                                                \
    *address = static_cast<T>(result);                                                                     \
    return old;                                                                                            \
  }
CUEMU_ATOMIC(atomicAdd, std::is_floating_point_v<T>, old + value)
CUEMU_ATOMIC(atomicExch, std::is_floating_point_v<T>, value)
CUEMU_ATOMIC(atomicSub, std::is_integral_v<T>, old - value)
CUEMU_ATOMIC(atomicMin, std::is_integral_v<T>, value < old ? value : old)
CUEMU_ATOMIC(atomicAnd, std::is_integral_v<T>, old& value)
CUEMU_ATOMIC(atomicXor, std::is_integral_v<T>, old ^ value)
CUEMU_ATOMIC(atomicDec, (std::is_same_v<T, unsigned>), old == 0 || old > value ? value : old - 1)
#undef CUEMU_ATOMIC
template <class T>
requires(std::is_integral_v<T>) __attribute__((noinline, no_sanitize("thread"))) T
    atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  if (old == expected) *address = value;
  return old;
}
