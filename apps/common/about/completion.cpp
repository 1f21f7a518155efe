#include "convoy/apps/common/about/completion.h"

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// Returns the name of the function: "_convoy_train".
std::string function_name(const std::string& program) {
  std::string name = "_" + program;
  for (char& c : name)
    if (c == '-' || c == '.' || c == ' ') c = '_';
  return name;
}

std::string joined(const std::vector<std::string>& words, const char* by) {
  return fmt::format("{}", fmt::join(words, by));
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

}  // namespace

std::string bash_completion(const std::string& program, std::span<const CompletionFlag> flags) {
  std::string cases;
  std::vector<std::string> names, without_words;
  for (const CompletionFlag& flag : flags) {
    names.insert(names.end(), flag.names.begin(), flag.names.end());
    if (flag.value.empty()) continue;
    const std::string files = flag.is_file ? " compopt -o default 2>/dev/null;" : "";
    if (flag.words.empty() && !flag.is_file)
      without_words.insert(without_words.end(), flag.names.begin(), flag.names.end());
    else
      cases += fmt::format("    {})\n      COMPREPLY=($(compgen -W '{}' -- \"$current\"));{} return 0 ;;\n",
                           joined(flag.names, "|"), joined(flag.words, " "), files);
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
      program, function_name(program), cases, joined(names, " "));
}

std::string zsh_completion(const std::string& program, std::span<const CompletionFlag> flags) {
  std::string rows;
  for (const CompletionFlag& flag : flags) {
    for (const std::string& name : flag.names) {
      const bool is_long = name.starts_with("--");
      std::string row = fmt::format("{}{}[{}]", name,
                                    flag.value.empty() ? ""
                                    : is_long          ? "="
                                                       : "+",
                                    escaped(flag.help, "[]\\"));
      if (!flag.value.empty()) {
        const std::string words = fmt::format("({})", joined(flag.words, " "));
        row += fmt::format(":{}:{}", escaped(flag.value, ":\\"),
                           flag.is_file         ? "_files"
                           : flag.words.empty() ? " "
                                                : words);
      }
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
      program, function_name(program), rows);
}

}  // namespace convoy
