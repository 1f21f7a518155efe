// Conversion of JSON from untrusted text: integers, and structs whose members are entries of an object.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

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
      fail<DataError>("found {}, expected an integer of {} bits", json_text(value_).substr(0, 40),
                      8 * sizeof(T));
    return value_.template get<T>();
  }

 private:
  const Json& value_;
};

/// Reads the entry `name` of an object. Throws an exception if there is none, or if it is no T.
template <class Json, class T>
void read_entry(const Json& json, const char* name, T& value) {
  if constexpr (std::integral<T> && !std::same_as<T, bool>)
    value = JsonInteger(json.at(name));
  else
    json.at(name).get_to(value);
}

}  // namespace convoy

/// Defines to_json() and from_json() of a struct, whose listed members are the entries of an object. For the
/// namespace of the struct, in a source that includes nlohmann/json.hpp. from_json() throws DataError for
/// any other JSON.
#define CONVOY_DEFINE_JSON(Type, ...)                                           \
  void to_json(nlohmann::json& json, const Type& value) {                       \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(CONVOY_WRITE_ENTRY, __VA_ARGS__))  \
  }                                                                             \
  void from_json(const nlohmann::json& json, Type& value) {                     \
    try {                                                                       \
      NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(CONVOY_READ_ENTRY, __VA_ARGS__)) \
    } catch (const std::exception& error) {                                     \
      ::convoy::fail<::convoy::DataError>(#Type ": {}", error.what());          \
    }                                                                           \
  }
#define CONVOY_WRITE_ENTRY(member) json[#member] = value.member;
#define CONVOY_READ_ENTRY(member) ::convoy::read_entry(json, #member, value.member);
