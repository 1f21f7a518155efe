#include "convoy/kernels/base/checksum.h"

#include <cstring>

namespace convoy {
namespace {

using Vector = std::uint64_t __attribute__((vector_size(32)));  // two registers on processors without AVX2
constexpr std::size_t kVectors = Checksum::kLineBytes / sizeof(Vector);
static_assert(kVectors == 2);

}  // namespace

template <bool copies>
void Checksum::append(const char* from, char* to, std::size_t bytes) {
  Vector sums[kVectors], sums_of_sums[kVectors];
  std::memcpy(sums, sums_.data(), kLineBytes);
  std::memcpy(sums_of_sums, sums_of_sums_.data(), kLineBytes);
  const auto append_vector = [&](const char* line, char* copy, std::size_t v) {
    Vector words;
    std::memcpy(&words, line + v * sizeof words, sizeof words);
    if constexpr (copies) std::memcpy(copy + v * sizeof words, &words, sizeof words);
    sums[v] += words;
    sums_of_sums[v] += sums[v];
  };
  const auto append_line = [&](const char* line, char* copy) {  // not a loop: all sums stay in registers
    append_vector(line, copy, 0);
    append_vector(line, copy, 1);
  };
  const std::size_t whole = bytes / kLineBytes * kLineBytes;
  for (std::size_t at = 0; at < whole; at += kLineBytes) append_line(from + at, copies ? to + at : nullptr);
  if (whole < bytes) {
    char last[kLineBytes] = {};
    std::memcpy(last, from + whole, bytes - whole);
    append_line(last, last);
    if constexpr (copies) std::memcpy(to + whole, last, bytes - whole);
  }
  std::memcpy(sums_.data(), sums, kLineBytes);
  std::memcpy(sums_of_sums_.data(), sums_of_sums, kLineBytes);
}

void Checksum::add(const void* data, std::size_t bytes) {
  append<false>(static_cast<const char*>(data), nullptr, bytes);
}

void Checksum::copy(const void* from, void* to, std::size_t bytes) {
  append<true>(static_cast<const char*>(from), static_cast<char*>(to), bytes);
}

std::uint64_t Checksum::value() const {
  std::uint64_t value = 0;
  for (std::size_t lane = kLanes; lane-- > 0;)
    value = value * kFactor + sums_[lane] + 2 * sums_of_sums_[lane];
  return value;
}

}  // namespace convoy
