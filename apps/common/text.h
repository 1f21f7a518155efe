// Texts for the terminal, lists and numbers in texts, and texts by name.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convoy {

/// Returns "1 thread" or "2 threads". `plural` is for nouns that take more than an s.
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {});

/// Formats a duration as "1:02:03" or "4:05".
std::string format_duration(double seconds);

/// Formats a loss with four decimals, from 10,000 on with three digits: "1.08e+14".
std::string format_loss(double loss);

/// Returns the time as ISO 8601 with milliseconds: "2026-01-31T23:59:59.123Z".
std::string utc_now();

/// Returns the number of columns of the terminal on standard output; 80 if it is none.
std::size_t terminal_width();

/// Returns a bar of which `share`, 0 to 1, is full.
std::string progress_bar(double share);

/// A part of a line that may be too long for its terminal.
struct LinePart {
  std::string text;
  int leaves = 0;  // parts with the largest number are left out first; those with 0 stay
};
/// Joins the parts with two spaces, without those that must leave so that the line has at most `columns`
/// columns. The text is ASCII.
std::string fit_line(std::vector<LinePart> parts, std::size_t columns);

/// Prints rows of a name and a value in two aligned columns.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

/// Returns a field of a CSV file (RFC 4180), in quotes if it has a separator, a quote or a line break.
std::string csv_field(const std::string& text);
inline constexpr const char* kCsvLineEnd = "\r\n";

/// Returns the finite number that is the whole text; nullopt if it is none, or out of the range of T.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && std::isfinite(static_cast<double>(number)) ? std::optional(number) : std::nullopt;
}

/// Returns the value of a key; `missing` if there is none.
std::string value_at(const std::map<std::string, std::string>& values, const std::string& key,
                     const std::string& missing = "");

/// Returns the parts of a text between separators; none of an empty text, and no empty part at its end.
std::vector<std::string> split(const std::string& text, char separator = ',');
/// Returns the parts that are not empty.
std::vector<std::string> words_of(const std::string& text, char separator = ' ');

}  // namespace convoy
