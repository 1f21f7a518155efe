// The multiplications of tensor cores, as emulator/cuemu/ptx.py calls them for inline PTX.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ptx.h>

namespace cuemu {

/// Returns the number that 16 bits stand for.
template <class T>
float widened(std::uint16_t bits) {
  return T::from_bits(bits);
}

#define CUEMU_MMA(name, type)                                                                        \
  inline void name(float& d0, float& d1, float& d2, float& d3, std::uint32_t a0, std::uint32_t a1,   \
                   std::uint32_t a2, std::uint32_t a3, std::uint32_t b0, std::uint32_t b1, float c0, \
                   float c1, float c2, float c3,                                                     \
                   std::source_location where = std::source_location::current()) {                   \
    float d[4] = {c0, c1, c2, c3};                                                                   \
    convoy::emulator::multiply_matrices(d, {a0, a1, a2, a3}, {b0, b1}, widened<type>, where);        \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                                                      \
  }
CUEMU_MMA(mma_bf16, __nv_bfloat16)
CUEMU_MMA(mma_f16, __half)
#undef CUEMU_MMA

/// mapa: the address in block `rank` of what is at an address of shared memory.
inline void map_generic(std::uint64_t& to, std::uint64_t from, std::uint32_t rank,
                        std::source_location where = std::source_location::current()) {
  to = reinterpret_cast<std::uint64_t>(
      __cluster_map_shared_rank(reinterpret_cast<const void*>(from), rank, where));
}
inline void map_shared(std::uint32_t& to, std::uint32_t from, std::uint32_t rank,
                       std::source_location where = std::source_location::current()) {
  to = convoy::emulator::map_shared_address(from, rank, where);
}
template <class T>
__attribute__((always_inline)) inline void load_shared(
    T& to, std::uint32_t from, std::source_location where = std::source_location::current()) {
  to = *static_cast<const T*>(convoy::emulator::at_shared_address(from, where));
}
template <class T>
__attribute__((always_inline)) inline void store_shared(
    std::uint32_t to, T value, std::source_location where = std::source_location::current()) {
  *static_cast<T*>(convoy::emulator::at_shared_address(to, where)) = value;
}

}  // namespace cuemu
