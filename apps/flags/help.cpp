// The text of --help.
#include <algorithm>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

constexpr std::size_t kHelpColumns = 80;
/// The maximum column at which descriptions begin; a longer name gets a line of its own.
constexpr std::size_t kMaxDescriptionColumn = 26;
/// The group to which the help adds the flags of every program.
constexpr const char* kLastGroup = "Other";

/// A line of the help: the name of a flag with the placeholder of its value, and the words of its description. A word
/// may contain spaces where no line may break.
struct HelpEntry {
  std::string name;
  std::vector<std::string> description;
};

/// Joins words to lines of at most `columns` characters; a longer word gets a line of its own.
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

/// Returns the entry with the lines of its description at `column`.
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

/// Returns "-b, --minbytes BYTES" or "--[no-]download".
std::string format_name(const CommandLine::Flag& flag) {
  std::string text;
  if (flag.details.short_name != '\0') text = fmt::format("-{}, ", flag.details.short_name);
  text += (flag.target.is_boolean && flag.details.in_config ? "--[no-]" : "--") + flag.name;
  if (!flag.target.is_boolean && !flag.details.value.empty())
    text +=
        fmt::format(fmt::runtime(flag.details.without_value.empty() ? " {}" : " [{}]"), flag.details.value);
  return text;
}

using Texts = std::map<std::string, std::string>;

/// Returns "[default: 128]", "[required]", or an empty string for an action without a value. `values` are those of the
/// flags, and `texts` replace some of them.
std::string format_default(const CommandLine::Flag& flag, const Texts& values, const Texts& texts) {
  if (flag.details.required) return "[required]";
  if (!flag.details.in_config && flag.target.is_boolean) return "";
  std::string text = flag.details.default_text;
  for (const Texts* const all : {&texts, &values})
    if (const auto found = all->find(flag.name); text.empty() && found != all->end()) text = found->second;
  const std::string& note = flag.details.default_note;
  return fmt::format("[default: {}{}{}]", text.empty() ? "none" : text, note.empty() ? "" : "; ", note);
}

/// Returns the description with the valid values in front of the first semicolon:
/// "Layers: auto, cifar, imagenet; auto depends on the image size".
std::string description_of(const CommandLine::Flag& flag) {
  const FlagDetails& details = flag.details;
  const bool value_lists_choices = details.value.find('|') != std::string::npos;  // "0|1|2"
  if (details.choices.empty() || value_lists_choices) return flag.help;
  const std::size_t noun = std::min(flag.help.find(';'), flag.help.size());
  return fmt::format("{}: {}{}", flag.help.substr(0, noun), fmt::join(details.choices, ", "),
                     flag.help.substr(noun));
}

HelpEntry help_entry(const CommandLine::Flag& flag, const std::string& shown_default) {
  HelpEntry entry{.name = format_name(flag), .description = words_of(description_of(flag))};
  if (shown_default.size() <= kHelpColumns - kMaxDescriptionColumn) {
    if (!shown_default.empty()) entry.description.push_back(shown_default);  // on one line
  } else {
    for (std::string& word : words_of(shown_default)) entry.description.push_back(std::move(word));
  }
  return entry;
}

}  // namespace

std::string CommandLine::help(bool all) const {
  std::string text = fmt::format("Usage: {} [FLAG]...", program_);
  if (positionals_ != nullptr) text += fmt::format(" {}...", positionals_name_);
  if (command_ != nullptr) text += fmt::format(" {} [FLAG]...", positionals_name_);
  text += fmt::format("\n\n{}\n", fmt::join(fill_lines(words_of(description_), kHelpColumns), "\n"));

  const Texts values = this->values(), texts = default_texts_ ? default_texts_() : Texts();
  std::vector<std::pair<std::string, std::vector<HelpEntry>>> sections;
  if (positionals_ != nullptr || command_ != nullptr)
    sections.push_back({"Arguments", {{positionals_name_, words_of(positionals_help_)}}});
  for (const std::string& title : groups_) {
    std::vector<HelpEntry> entries;
    for (const Flag& flag : flags_)
      if (flag.group == title && (all || !flag.details.advanced))
        entries.push_back(help_entry(flag, format_default(flag, values, texts)));
    if (!entries.empty()) sections.emplace_back(title, std::move(entries));
  }
  if (sections.empty() || sections.back().first != kLastGroup) sections.push_back({kLastGroup, {}});
  for (const Flag& flag : common_flags()) sections.back().second.push_back(help_entry(flag, ""));

  std::size_t column = 0;  // of all descriptions
  for (const auto& [title, entries] : sections)
    for (const HelpEntry& entry : entries) column = std::max(column, entry.name.size() + 4);
  column = std::min(column, kMaxDescriptionColumn);
  for (const auto& [title, entries] : sections) {
    text += fmt::format("\n{}:\n", title);
    for (const HelpEntry& entry : entries) text += format_entry(entry, column);
  }
  if (!all) text += "\nAdvanced flags are omitted; --help-all lists all flags.\n";
  return text;
}

}  // namespace convoy
