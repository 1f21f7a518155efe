#include "tests/apps/cluster/yaml_text.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace convoy::testing {
namespace {

struct Line {
  int number;
  std::size_t indent;
  std::string text;  // without indentation
};

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos || line[indent] == '#') continue;
    lines.push_back({number, indent, line.substr(indent)});
  }
  return lines;
}

class Parser {
 public:
  explicit Parser(const std::string& text) : lines_(lines_of(text)) {}

  Json whole() {
    const Json value = block(0);
    if (at_ < lines_.size()) refuse("has an unexpected indentation");
    return value;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    const Line& line = lines_[std::min(at_, lines_.size() - 1)];
    throw std::runtime_error("line " + std::to_string(line.number) + " '" + line.text + "' " + why);
  }
  bool is_at(std::size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }

  Json block(std::size_t indent) {
    if (!is_at(indent)) refuse("has no value");
    return lines_[at_].text.starts_with("- ") ? list(indent) : map(indent);
  }

  Json list(std::size_t indent) {
    Json values = Json::array();
    while (is_at(indent) && lines_[at_].text.starts_with("- ")) {
      // The text after the dash is a map with two more columns of indentation.
      lines_[at_].text.erase(0, 2);
      lines_[at_].indent = indent + 2;
      const std::string& text = lines_[at_].text;
      if (text.find(": ") != std::string::npos || text.ends_with(':')) {
        values.push_back(map(indent + 2));
      } else {
        ++at_;
        values.push_back(text == "|" ? literal(indent) : scalar(text));
      }
    }
    return values;
  }

  Json map(std::size_t indent) {
    Json values = Json::object();
    while (is_at(indent) && !lines_[at_].text.starts_with("- ")) {
      const std::string& text = lines_[at_].text;
      const std::size_t colon = text.find(':');
      if (colon == std::string::npos || (colon + 1 < text.size() && text[colon + 1] != ' '))
        refuse("has no key");
      const std::string key = text.substr(0, colon);
      if (values.contains(key)) refuse("repeats a key");
      if (colon + 1 < text.size()) {
        values[key] = scalar(text.substr(colon + 2));
        ++at_;
      } else {
        ++at_;
        values[key] =
            block(at_ < lines_.size() && lines_[at_].indent > indent ? lines_[at_].indent : indent + 2);
      }
    }
    return values;
  }

  /// Reads the lines of a literal block, which are indented more than `indent`. Comments and empty lines are left out.
  Json literal(std::size_t indent) {
    std::string text;
    const std::size_t begin = at_ < lines_.size() ? lines_[at_].indent : 0;
    for (; at_ < lines_.size() && lines_[at_].indent > indent; ++at_)
      text += std::string(lines_[at_].indent - begin, ' ') + lines_[at_].text + "\n";
    return text;
  }

  Json scalar(const std::string& text) const {
    if (text.find(" #") != std::string::npos) refuse("has a comment after a value");
    if (text == "true" || text == "false") return text == "true";
    const bool is_json =
        text[0] == '[' || text[0] == '"' || text.find_first_not_of("0123456789") == std::string::npos;
    if (!is_json) {
      if (std::string("{&*!|>'%@`").find(text[0]) != std::string::npos ||
          text.find(": ") != std::string::npos)
        refuse("uses an unsupported YAML feature");
      return text;
    }
    const Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) refuse("is neither a list nor a text");
    return value;
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

Json parse_yaml(const std::string& text) { return Parser(text).whole(); }

}  // namespace convoy::testing
