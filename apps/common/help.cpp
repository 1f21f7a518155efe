// The texts of --help and --completion.
#include <algorithm>

#include "convoy/apps/common/command_line.h"
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

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space > 0) words.emplace_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return words;
}

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

bool is_negatable(const CommandLine::Flag& flag) { return flag.target.is_boolean && flag.details.in_config; }

/// Returns "-b, --minbytes BYTES" or "--[no-]download".
std::string format_name(const CommandLine::Flag& flag) {
  std::string text;
  if (flag.details.short_name != '\0') text = fmt::format("-{}, ", flag.details.short_name);
  text += (is_negatable(flag) ? "--[no-]" : "--") + flag.name;
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
  HelpEntry entry{.name = format_name(flag), .description = split_words(description_of(flag))};
  if (shown_default.size() <= kHelpColumns - kMaxDescriptionColumn) {
    if (!shown_default.empty()) entry.description.push_back(shown_default);  // on one line
  } else {
    for (std::string& word : split_words(shown_default)) entry.description.push_back(std::move(word));
  }
  return entry;
}

std::string joined(const std::vector<std::string>& words, const char* by) {
  return fmt::format("{}", fmt::join(words, by));
}

/// Returns the names of a flag with dashes: "-b", "--minbytes".
std::vector<std::string> names_with_dashes(const CommandLine::Flag& flag) {
  std::vector<std::string> names;
  if (flag.details.short_name != '\0') names.push_back({'-', flag.details.short_name});
  names.push_back("--" + flag.name);
  if (is_negatable(flag)) names.push_back("--no-" + flag.name);
  return names;
}

/// Returns the placeholder of the value; "" for a flag without one.
std::string placeholder_of(const CommandLine::Flag& flag) {
  if (flag.target.is_boolean) return "";
  return flag.details.value.empty() ? "VALUE" : flag.details.value;
}

/// Returns whether the value may be the name of a file or directory.
bool takes_file(const CommandLine::Flag& flag) {
  const std::string value = placeholder_of(flag);
  const auto has = [&](const char* word) { return value.find(word) != std::string::npos; };
  return has("FILE") || has("DIR") || has("RUN");
}

/// Returns the words that are valid values: the choices, or those of a placeholder such as "auto|DIR".
std::vector<std::string> words_of(const CommandLine::Flag& flag) {
  std::vector<std::string> words = flag.details.choices;
  const std::string value = placeholder_of(flag);
  if (!words.empty() || value.find('|') == std::string::npos) return words;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find('|', at), value.size());
    const std::string word = value.substr(at, std::min(value.find('[', at), end) - at);
    if (std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
      words.push_back(word);
    at = end + 1;
  }
  return words;
}

/// Returns the text with a backslash before each character of `special`, for a string in single quotes.
std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result;
}

/// Returns a script that defines `function` and registers it with `complete`. Arguments that are not flags are
/// completed as file names.
std::string bash_completion(const std::string& program, const std::string& function,
                            const std::vector<CommandLine::Flag>& flags) {
  std::string cases;
  std::vector<std::string> all, without_words;
  for (const CommandLine::Flag& flag : flags) {
    const std::vector<std::string> names = names_with_dashes(flag), words = words_of(flag);
    all.insert(all.end(), names.begin(), names.end());
    if (flag.target.is_boolean) continue;
    const std::string files = takes_file(flag) ? " compopt -o default 2>/dev/null;" : "";
    if (words.empty() && files.empty())
      without_words.insert(without_words.end(), names.begin(), names.end());
    else
      cases += fmt::format("    {})\n      COMPREPLY=($(compgen -W '{}' -- \"$current\"));{} return 0 ;;\n",
                           joined(names, "|"), joined(words, " "), files);
  }
  if (!without_words.empty()) cases += fmt::format("    {}) return 0 ;;\n", joined(without_words, "|"));
  return fmt::format(
      R"(# Completion of {0} for bash. Load it: source <({0} --completion bash)
{1}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} flag=${{COMP_WORDS[COMP_CWORD - 1]}}
  # In --flag=value, the equals sign is a word.
  if [[ $current == = ]]; then
    current=
  elif [[ $flag == = ]]; then
    flag=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  COMPREPLY=()
  case $flag in
{2}  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W '{3}' -- "$current"))
  else
    compopt -o default 2>/dev/null
  fi
  return 0
}}
complete -F {1} {0}
)",
      program, function, cases, joined(all, " "));
}

/// Returns a script with a function for zsh's completion system, which works as an autoloaded file "_PROGRAM" and when
/// it is sourced.
std::string zsh_completion(const std::string& program, const std::string& function,
                           const std::vector<CommandLine::Flag>& flags) {
  std::string rows;
  for (const CommandLine::Flag& flag : flags) {
    const std::vector<std::string> words = words_of(flag);
    const std::string value = placeholder_of(flag);
    for (const std::string& name : names_with_dashes(flag)) {
      const char* const sign = value.empty() ? "" : name.starts_with("--") ? "=" : "+";
      std::string row = fmt::format("{}{}[{}]", name, sign, escaped(flag.help, "[]\\"));
      if (!value.empty())
        row += fmt::format(":{}:{}", escaped(value, ":\\"),
                           takes_file(flag) ? "_files"
                           : words.empty()  ? " "
                                            : fmt::format("({})", joined(words, " ")));
      rows += fmt::format("    '{}' \\\n", row);
    }
  }
  return fmt::format(
      R"(#compdef {0}
# Completion of {0} for zsh. Install it as _{0} in a directory of $fpath, or: source <({0} --completion zsh)
{1}() {{
  _arguments \
{2}    '*:file:_files'
}}
if [[ ${{funcstack[1]}} == _{0} ]]; then
  {1} "$@"
else
  compdef {1} {0}
fi
)",
      program, function, rows);
}

}  // namespace

std::string CommandLine::help(bool all) const {
  std::string text = fmt::format("Usage: {} [FLAG]...", program_);
  if (positionals_ != nullptr) text += fmt::format(" {}...", positionals_name_);
  if (command_ != nullptr) text += fmt::format(" {} [FLAG]...", positionals_name_);
  text += fmt::format("\n\n{}\n", joined(fill_lines(split_words(description_), kHelpColumns), "\n"));

  const Texts values = this->values(), texts = default_texts_ ? default_texts_() : Texts();
  std::vector<std::pair<std::string, std::vector<HelpEntry>>> sections;
  if (positionals_ != nullptr || command_ != nullptr)
    sections.push_back({"Arguments", {{positionals_name_, split_words(positionals_help_)}}});
  for (const std::string& title : groups_) {
    std::vector<HelpEntry> entries;
    for (const Flag& flag : flags_)
      if (flag.group == title && (all || !flag.details.advanced))
        entries.push_back(help_entry(flag, format_default(flag, values, texts)));
    if (!entries.empty()) sections.emplace_back(title, std::move(entries));
  }
  if (sections.empty() || sections.back().first != kLastGroup) sections.push_back({kLastGroup, {}});
  for (const Flag& flag : common_flags())
    if (all || !flag.details.advanced) sections.back().second.push_back(help_entry(flag, ""));

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

std::string CommandLine::completion(const std::string& shell) const {
  std::vector<Flag> flags = flags_;
  flags.insert(flags.end(), common_flags().begin(), common_flags().end());
  std::string function = "_" + program_;  // "_convoy_train"
  std::replace_if(
      function.begin(), function.end(), [](char c) { return c == '-' || c == '.' || c == ' '; }, '_');
  return shell == "zsh" ? zsh_completion(program_, function, flags)
                        : bash_completion(program_, function, flags);
}

}  // namespace convoy
