#include "convoy/kernels/base/checksum.h"

#include <algorithm>
#include <cstring>

namespace convoy {
namespace {

constexpr std::size_t kBlockBytes = 4096;  // remain in the L1 cache between the two passes of copy()

using Vector = std::uint64_t __attribute__((vector_size(16)));  // of all 64-bit processors
constexpr std::size_t kVectors = Checksum::kLineBytes / sizeof(Vector);
static_assert(kVectors == 4);

}  // namespace

void Checksum::add(const void* data, std::size_t bytes) {
  Vector sums[kVectors], sums_of_sums[kVectors];
  std::memcpy(sums, sums_.data(), kLineBytes);
  std::memcpy(sums_of_sums, sums_of_sums_.data(), kLineBytes);
  const auto append_vector = [&](const char* line, std::size_t v) {
    Vector words;
    std::memcpy(&words, line + v * sizeof words, sizeof words);
    sums[v] += words;
    sums_of_sums[v] += sums[v];
  };
  const auto append_line = [&](const char* line) {  // not a loop, so that all sums stay in registers
    append_vector(line, 0);
    append_vector(line, 1);
    append_vector(line, 2);
    append_vector(line, 3);
  };
  const char* const first = static_cast<const char*>(data);
  const std::size_t whole = bytes / kLineBytes * kLineBytes;
  for (std::size_t at = 0; at < whole; at += kLineBytes) append_line(first + at);
  if (whole < bytes) {
    char last[kLineBytes] = {};
    std::memcpy(last, first + whole, bytes - whole);
    append_line(last);
  }
  std::memcpy(sums_.data(), sums, kLineBytes);
  std::memcpy(sums_of_sums_.data(), sums_of_sums, kLineBytes);
}

void Checksum::copy(const void* from, void* to, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kBlockBytes) {
    const std::size_t count = std::min(kBlockBytes, bytes - at);
    std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, count);
    add(static_cast<const char*>(from) + at, count);
  }
}

std::uint64_t Checksum::value() const {
  std::uint64_t value = 0;
  for (std::size_t lane = kLanes; lane-- > 0;)
    value = value * kFactor + sums_[lane] + 2 * sums_of_sums_[lane];
  return value;
}

}  // namespace convoy
