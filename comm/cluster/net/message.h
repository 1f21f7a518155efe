// Messages on a TCP connection: a length and that many bytes; and the numbers in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace convoy::dist {

/// Appends a number of `count` bytes, little endian.
void append_number(std::string& bytes, std::uint64_t number, std::size_t count);
/// Returns the number of `count` bytes at this position of `bytes`.
std::uint64_t number_at(std::string_view bytes, std::size_t position, std::size_t count);

/// Appends `text` to `bytes` as a message: its length in 4 bytes, little endian, and the text.
void append_message(std::string& bytes, const std::string& text);

/// Removes the first message from `bytes` and returns its text; nullopt if it is incomplete. Throws DataError
/// if it is longer than `max_bytes`. Of a view, it moves nothing.
std::optional<std::string> take_message(std::string_view& bytes, std::size_t max_bytes);
std::optional<std::string> take_message(std::string& bytes, std::size_t max_bytes);

}  // namespace convoy::dist
