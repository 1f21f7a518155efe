// The flat subset of TOML that --config reads and in which OUT/config.toml is written.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

struct ConfigEntry {
  std::string key;
  std::string value;     // without quotes; numbers and booleans as they are written in the file
  int line = 0;          // counted from 1
  bool is_text = false;  // in quotes
};

/// Parses `key = value` lines. Values are strings in either kind of TOML's one-line quotes, numbers and
/// booleans; # begins a comment. A string "percent-encoded:M%FCller" has the bytes that it names. Throws
/// UsageError "NAME:LINE: …" for anything else, including tables and arrays, which no flag takes.
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view name);
/// Does the same, and returns the values by key.
std::map<std::string, std::string> parse_values(std::string_view text,
                                                std::string_view name = "configuration");
/// Reads and parses the file, without a byte order mark. Throws UsageError if it cannot be read or is UTF-16, and as
/// parse_config() does.
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path);

/// Returns a string as a quoted TOML value that parse_config() reads back.
std::string quote_for_config(std::string_view value);

}  // namespace convoy
