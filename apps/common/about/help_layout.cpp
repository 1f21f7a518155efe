#include "convoy/apps/common/about/help_layout.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy {

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space > 0) words.emplace_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return words;
}

std::vector<std::string> fill_lines(const std::vector<std::string>& words, std::size_t columns) {
  std::vector<std::string> lines;
  for (const std::string& word : words) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > columns)
      lines.push_back(word);
    else
      lines.back() += " " + word;
  }
  return lines;
}

namespace {

std::string format_entry(const HelpEntry& entry, std::size_t column) {
  std::string text = fmt::format("  {}", entry.name);
  bool shares_line = text.size() + 2 <= column;
  for (const std::string& line : fill_lines(entry.description, kHelpColumns - column)) {
    if (shares_line)
      text.resize(column, ' ');
    else
      text.append("\n").append(column, ' ');
    text += line;
    shares_line = false;
  }
  return text + "\n";
}

}  // namespace

std::string format_sections(const std::vector<HelpSection>& sections) {
  std::size_t column = 0;
  for (const HelpSection& section : sections)
    for (const HelpEntry& entry : section.entries) column = std::max(column, entry.name.size() + 4);
  column = std::min(column, kMaxDescriptionColumn);
  std::string text;
  for (const HelpSection& section : sections) {
    text += fmt::format("\n{}:\n", section.title);
    for (const HelpEntry& entry : section.entries) text += format_entry(entry, column);
  }
  return text;
}

}  // namespace convoy
