// Texts for the terminal, and lists in texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convoy {

/// Returns "1 thread" or "2 threads". `plural` is for nouns that take more than an s.
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {});

/// Formats a duration as "1:02:03" or "4:05".
std::string format_duration(double seconds);

/// Prints rows of a name and a value in two aligned columns.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

/// Returns the parts of a text between separators; none of an empty text, and no empty part at its end.
std::vector<std::string> split(const std::string& text, char separator = ',');

}  // namespace convoy
