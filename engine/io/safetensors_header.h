// Streaming parser for the JSON header of a safetensors file. It rejects an invalid header at the first
// offending character, however deep or long the rest is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/kernels/base/view.h"

namespace convoy::io {

/// The validated entry of one tensor: [begin, end) is within the data, and end - begin = numel x element
/// size.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // the format's name: "F32"
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data, which they cover without gaps
  std::map<std::string, std::string> metadata;
};

/// Returns the element size in bytes of one of the format's types; 0 if the type is not supported.
std::size_t safetensors_element_size(std::string_view dtype);

/// The maximum header size in bytes, as in the format's reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses and validates a header. `data_bytes` is the size of the file after the header. Throws
/// CheckpointError, which begins with the path, if the header is invalid or does not match the data size.
SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, std::string_view json,
                                           std::uint64_t data_bytes);

/// Returns a name from a file for use in a one-line message: quoted, shortened, and with control characters
/// replaced.
std::string printable(std::string_view name);

}  // namespace convoy::io
