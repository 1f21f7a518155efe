#include "convoy/apps/flags/config_file.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

// TOML is UTF-8: a value with other bytes is written percent-encoded, behind this prefix.
constexpr std::string_view kEncodedPrefix = "percent-encoded:";

/// Parses one line of a file from left to right.
class LineParser {
 public:
  LineParser(std::string_view text, std::string_view name, int line)
      : rest_(text), name_(name), line_(line) {}

  bool at_end() {
    skip_blanks();
    return rest_.empty() || rest_.front() == '#';
  }

  ConfigEntry entry() {
    ConfigEntry entry{.key = bare_word(), .line = line_};
    if (entry.key.empty()) refuse("expected `flag = value`");
    skip_blanks();
    if (rest_.empty() || rest_.front() != '=') refuse(fmt::format("expected '=' after '{}'", entry.key));
    rest_.remove_prefix(1);
    skip_blanks();
    if (rest_.empty()) refuse(fmt::format("'{}' has no value", entry.key));
    const char first = rest_.front();
    entry.is_text = first == '\'' || first == '"';
    entry.value = entry.is_text ? quoted_string(first) : bare_word();
    if (entry.is_text && entry.value.starts_with(kEncodedPrefix)) {
      const auto decoded = percent_decoded(std::string_view(entry.value).substr(kEncodedPrefix.size()));
      if (!decoded) refuse(fmt::format("the value of '{}' has a % without two digits 0-9A-F", entry.key));
      entry.value = *decoded;
    }
    if (entry.value.empty() && !entry.is_text)
      refuse(fmt::format("the value of '{}' is not a string, number or boolean", entry.key));
    if (!at_end())
      refuse(
          fmt::format("found '{}' after the value of '{}', expected the end of the line", rest_, entry.key));
    return entry;
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size())); }

  std::string bare_word() {
    std::size_t length = 0;
    while (length < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 ||
                                     std::string_view("_-+.").find(rest_[length]) != std::string_view::npos))
      ++length;
    const std::string word(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return word;
  }

  /// Parses a literal string in single quotes, or a basic one in double quotes, which has escapes.
  std::string quoted_string(char quote) {
    std::string value;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == quote) {
        rest_.remove_prefix(i + 1);
        return value;
      }
      if (quote == '\'' || rest_[i] != '\\') {
        value += rest_[i];
        continue;
      }
      const char escaped = ++i < rest_.size() ? rest_[i] : '\0';
      const std::size_t which = std::string_view("\"\\nt").find(escaped);
      if (which == std::string_view::npos) refuse("found an unknown escape, expected \\\", \\\\, \\n or \\t");
      value += "\"\\\n\t"[which];
    }
    refuse("a string has no closing quote");
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail<UsageError>("{}:{}: {}", name_, line_, what);
  }

  std::string_view rest_, name_;
  int line_;
};

}  // namespace

std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view name) {
  std::vector<ConfigEntry> entries;
  int line = 0;
  for (const std::string& each : split(std::string(text), '\n')) {
    LineParser parser(each, name, ++line);
    if (!parser.at_end()) entries.push_back(parser.entry());
  }
  return entries;
}

std::map<std::string, std::string> parse_values(std::string_view text, std::string_view name) {
  std::map<std::string, std::string> values;
  for (ConfigEntry& entry : parse_config(text, name)) values[entry.key] = std::move(entry.value);
  return values;
}

std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !std::filesystem::is_regular_file(path))
    fail<UsageError>("--config: {} cannot be read, expected a file of `flag = value` lines", path.string());
  std::string content = text.str();
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);  // the byte order mark of some editors
  if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF"))
    fail<UsageError>("--config: {} is a text in UTF-16, expected UTF-8; save it as UTF-8", path.string());
  if (const std::size_t first = content.find_first_not_of(" \t\r\n");
      first != std::string::npos && content[first] == '{')
    fail<UsageError>(
        "--config: {} is a JSON file, expected a TOML file of `flag = value` lines, such as the config.toml "
        "of a run; docs/from-pytorch.md has the flags for the keys of DeepSpeed's configuration",
        path.string());
  return parse_config(content, path.string());
}

std::string quote_for_config(std::string_view value) {
  if (value.starts_with(kEncodedPrefix) || as_utf8<nlohmann::json>(std::string(value)) != value)
    return fmt::format("'{}{}'", kEncodedPrefix, percent_encoded(value));
  // Literal strings keep paths readable. Values that a literal string cannot hold are escaped.
  if (value.find_first_of("'\n\t") == std::string_view::npos) return fmt::format("'{}'", value);
  std::string quoted = "\"";
  for (const char c : value) {
    const std::size_t which = std::string_view("\"\\\n\t").find(c);
    if (which == std::string_view::npos)
      quoted += c;
    else
      quoted += {'\\', "\"\\nt"[which]};
  }
  return quoted + '"';
}

}  // namespace convoy
