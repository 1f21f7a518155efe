// The JSON header of a safetensors file, parsed event by event: what is not a header is refused at the first
// character that shows it, however deep or long the rest is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/runtime/view.h"

namespace convoy {

/// One tensor's entry, checked: begin and end lie in the data, and end - begin = shape x element size.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // the format's name: "F32"
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their data, which they fill without a hole
  std::map<std::string, std::string> metadata;
};

/// Bytes of one element of a type of the format that can be read; 0 for any other.
std::size_t safetensors_element_size(std::string_view dtype);

/// The longest header that is read, as in the format's reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// CheckpointError that begins with the path. data_bytes: length of the file behind the header.
SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, std::string_view json,
                                           std::uint64_t data_bytes);

/// A name from a file, fit for one line of a message: quoted, shortened, control characters replaced.
std::string printable(std::string_view name);

}  // namespace convoy
