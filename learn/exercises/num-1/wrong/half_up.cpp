// Adds a half, as in school.
#include <bit>
#include <cstdint>

std::uint16_t to_bf16(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7fffffff) > 0x7f800000) return word >> 16 | 0x40;  // NaN
  return (word + 0x8000) >> 16;
}
