#include "convoy/apps/common/text.h"

#include <fmt/chrono.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_loss(double loss) {
  constexpr double kLarge = 1e4;
  return loss < kLarge ? fmt::format("{:.4f}", loss) : fmt::format("{:.3g}", loss);
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), milliseconds.count());
}

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string progress_bar(double share) {
  constexpr std::size_t kWidth = 24;
  return fmt::format("[{:<{}}]", std::string(static_cast<std::size_t>(share * kWidth), '='), kWidth);
}

std::string fit_line(std::vector<LinePart> parts, std::size_t columns) {
  while (true) {
    std::string line;
    for (const LinePart& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    const auto last = std::ranges::max_element(parts, {}, &LinePart::leaves);
    if (line.size() <= columns || last == parts.end() || last->leaves == 0) return line;
    parts.erase(last);
  }
}

void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  for (const auto& [name, value] : rows)
    fmt::print("  {:<{}}  {}\n", name, width, without_control_characters(value));
  std::fflush(stdout);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string value_at(const std::map<std::string, std::string>& values, const std::string& key,
                     const std::string& missing) {
  const auto found = values.find(key);
  return found == values.end() ? missing : found->second;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> words = split(text, separator);
  std::erase(words, "");
  return words;
}

}  // namespace convoy
