// Conversion of JSON numbers from untrusted text to integers.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy {

/// A JSON value, of the class `Json` of nlohmann's library, that converts to an integer type. The library's
/// own conversion accepts floating-point numbers, with undefined behavior for large ones, and reduces
/// integers that are out of range.
template <class Json>
class JsonInteger {
 public:
  /// Refers to `value`, which must outlive this object.
  explicit JsonInteger(const Json& value) : value_(value) {}

  /// Returns the integer. Throws DataError if the value is none, or out of range.
  template <std::integral T>
  operator T() const {
    const bool fits = value_.is_number_unsigned()  ? std::in_range<T>(value_.template get<std::uint64_t>())
                      : value_.is_number_integer() ? std::in_range<T>(value_.template get<std::int64_t>())
                                                   : false;
    if (!fits)
      fail<DataError>("found {}, expected an integer of {} bits", value_.dump().substr(0, 40), 8 * sizeof(T));
    return value_.template get<T>();
  }

 private:
  const Json& value_;
};

}  // namespace convoy
