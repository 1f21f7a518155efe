// Settings from environment variables.
#pragma once

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

namespace convoy::emulator {

/// Returns the value of an environment variable, or an empty string if it is not set.
inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Returns the value of an environment variable that has a number, or `default_value` if it is empty or not
/// set. Throws std::invalid_argument if it is not a decimal number that T represents.
template <class T>
T number(const char* name, T default_value) {
  const std::string text = variable(name);
  if (text.empty()) return default_value;
  const bool is_number = text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  const unsigned long long value =
      is_number ? std::stoull(text) : std::numeric_limits<unsigned long long>::max();
  if (value > static_cast<unsigned long long>(std::numeric_limits<T>::max()))
    throw std::invalid_argument(std::string(name) + ": found '" + text + "', expected a number");
  return static_cast<T>(value);
}

}  // namespace convoy::emulator
