// Treats NaN as a number.
#include <bit>
#include <cstdint>

std::uint16_t to_bf16(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
