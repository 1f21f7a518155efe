#include "convoy/apps/common/text.h"

#include <algorithm>
#include <cmath>
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

void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  for (const auto& [name, value] : rows)
    fmt::print("  {:<{}}  {}\n", name, width, without_control_characters(value));
  std::fflush(stdout);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace convoy
