// A checksum of bytes, fast enough to be computed wherever bytes are copied or summed anyway.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace convoy {

/// A 64-bit checksum of a sequence of bytes. It multiplies each 64-bit word by an odd number that depends on
/// the place of the word, and adds the results modulo 2^64.
///
/// Any change within one aligned word of 8 bytes changes the value, so every single flipped bit does. Changes
/// in several words remain undetected if their weighted differences cancel, such as two flipped highest bits.
/// That happens for fewer than one in 1,000 random pairs of flipped bits, and for one in 2^64 pairs of
/// random sequences. It is no protection against an attacker.
class Checksum {
 public:
  static constexpr std::size_t kLineBytes = 64;  // one word for each lane
  static constexpr std::size_t kLanes = kLineBytes / sizeof(std::uint64_t);
  /// The factor of the words of lane l is a power of this number, with the exponent l.
  static constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;

  /// Appends bytes. The last line of a call is filled up with zeros, so all calls but the last one should
  /// append whole lines.
  void add(const void* data, std::size_t bytes);
  /// Copies bytes, and appends those that it has read. The two ranges must not overlap.
  void copy(const void* from, void* to, std::size_t bytes);
  /// Returns the checksum of the bytes appended so far.
  std::uint64_t value() const;

 private:
  template <bool copies>
  void append(const char* from, char* to, std::size_t bytes);

  // By lane: the sum of the words, and the sum of all values that this sum has had. The latter is a sum of
  // words that are weighted by the number of lines from there to the end.
  std::array<std::uint64_t, kLanes> sums_{}, sums_of_sums_{};
};

}  // namespace convoy
