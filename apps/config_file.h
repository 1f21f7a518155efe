// Flat TOML: what --config reads and OUT/config.toml is written in.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

struct ConfigEntry {
  std::string key;
  std::string value;  // unquoted; numbers and booleans as they were written
  int line = 0;       // from 1
};

/// `key = value` lines, with strings in either of TOML's one-line quotes, numbers and booleans; # begins a
/// comment. Tables and arrays hold nothing that a flag could take and are refused. UsageError "NAME:LINE: …".
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view name);
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path);

/// A string as a TOML value that parse_config reads back.
std::string quote_for_config(std::string_view value);

}  // namespace convoy
