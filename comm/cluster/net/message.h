// Messages on a TCP connection: a length and that many bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace convoy::dist {

/// Appends `text` to `bytes` as a message: its length in 4 bytes, little endian, and the text.
void append_message(std::string& bytes, const std::string& text);

/// Removes the first message from `bytes` and returns its text; nullopt if it is incomplete. Throws DataError
/// if it is longer than `max_bytes`.
std::optional<std::string> take_message(std::string& bytes, std::size_t max_bytes);

}  // namespace convoy::dist
