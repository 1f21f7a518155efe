// A configuration file of another program as a list of keys and values.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convoy::interop {

/// A value of a file. Nested keys are joined by dots: "zero_optimization.stage".
struct Setting {
  std::string key;
  /// Numbers with the minimum number of digits, "true" or "false", strings without quotes, "null". The elements of a list
  /// are joined by ", ". An empty object is "{}".
  std::string value;
};

/// Returns the bytes of a file. Throws UsageError, which names the `format`, if it cannot be read or is not a file.
std::string read_settings_text(const std::filesystem::path& file, const char* format);

/// Reads a JSON file, in the order of its keys. Throws UsageError if it cannot be read, is not an object, or has a key
/// twice.
std::vector<Setting> read_json(const std::filesystem::path& file);

/// Reads a YAML file, in the order of its keys. Throws UsageError if it cannot be read, is not a map, has a key twice, or
/// if this build has no yaml-cpp.
std::vector<Setting> read_yaml(const std::filesystem::path& file);

/// Returns a number with the minimum number of digits, other text unchanged: "0.0010" is "0.001".
std::string normalized_number(const std::string& text);

}  // namespace convoy::interop
