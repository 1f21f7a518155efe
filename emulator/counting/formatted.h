// Messages with values, without a library.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace convoy::emulator {

/// Returns `pattern` with each {} replaced by the next value, as an output stream prints it.
template <class... Values>
std::string formatted(std::string_view pattern, const Values&... values) {
  std::ostringstream out;
  const auto insert = [&](const auto& value) {
    const std::size_t at = pattern.find("{}");
    out << pattern.substr(0, at) << value;
    pattern.remove_prefix(at + 2);
  };
  (insert(values), ...);
  out << pattern;
  return out.str();
}

/// Returns a number in hexadecimal digits, as 0xff.
inline std::string hexadecimal(std::uint64_t value) {
  std::ostringstream out;
  out << std::hex << std::showbase << value;
  return out.str();
}

}  // namespace convoy::emulator
