// Opaque words that stand for elements of any type in code that only copies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/base/dtype.h"

namespace convoy::kernels {

/// Calls f with a zero of the unsigned integer type that has the size of an element of `dtype`.
template <class F>
void dispatch_word(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f(std::uint8_t{0});
    case 2: return f(std::uint16_t{0});
    case 4: return f(std::uint32_t{0});
    default: return f(std::uint64_t{0});
  }
}

/// Returns a word whose bytes are copies of `value`, converted to `dtype`.
template <class Word>
Word filled_word(double value, DType dtype) {
  Word word;
  dispatch(kAllTypes, dtype, [&](auto zero) {
    using T = decltype(zero);
    const T element = converted<T>(value);
    for (std::size_t at = 0; at + sizeof(T) <= sizeof(Word); at += sizeof(T))
      std::memcpy(reinterpret_cast<unsigned char*>(&word) + at, &element, sizeof(T));
  });
  return word;
}

}  // namespace convoy::kernels
