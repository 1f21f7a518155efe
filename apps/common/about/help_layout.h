// The layout of --help: words in lines of 80 columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

constexpr std::size_t kHelpColumns = 80;
/// The maximum column at which descriptions begin; a longer name gets a line of its own.
constexpr std::size_t kMaxDescriptionColumn = 26;

/// A flag as the help shows it: its name with the placeholder of the value, and the words of its description.
/// A word may contain spaces where no line may break.
struct HelpEntry {
  std::string name;
  std::vector<std::string> description;
};

/// A titled list of entries.
struct HelpSection {
  std::string title;
  std::vector<HelpEntry> entries;
};

/// Returns the parts between spaces.
std::vector<std::string> split_words(std::string_view text);

/// Joins words to lines of at most `columns` characters; a longer word gets a line of its own.
std::vector<std::string> fill_lines(const std::vector<std::string>& words, std::size_t columns);

/// Returns the sections in lines of at most kHelpColumns, with all descriptions at one column.
std::string format_sections(const std::vector<HelpSection>& sections);

}  // namespace convoy
