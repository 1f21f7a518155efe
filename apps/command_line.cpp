#include "apps/command_line.h"

#include <CLI/CLI.hpp>  // here alone: it takes seconds to compile
#include <charconv>
#include <cmath>
#include <memory>
#include <type_traits>

#include "apps/config_file.h"
#include "apps/version.h"
#include "kernels/runtime/check.h"
#include "models/nearest_name.h"

namespace convoy {
namespace {

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

template <class T>
T parse_number(const std::string& text, const std::string& source, const FlagDetails& details) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(static_cast<double>(value)))
    fail<UsageError>("{}: found '{}', expected a {}", source, text,
                     std::is_integral_v<T> ? "whole number" : "number");
  const auto number = static_cast<double>(value);
  if (number < details.least)
    fail<UsageError>("{}: found {}, expected at least {}", source, text, details.least);
  if (number > details.most)
    fail<UsageError>("{}: found {}, expected at most {}", source, text, details.most);
  return value;
}

bool parse_bool(const std::string& text, const std::string& source) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  fail<UsageError>("{}: found '{}', expected true or false", source, text);
}

std::string parse_string(const std::string& text, const std::string& source, const FlagDetails& details) {
  const auto& choices = details.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  const std::string nearest = nearest_name(text, choices);
  fail<UsageError>("{}: found '{}', expected {}{}", source, text, fmt::join(choices, ", "),
                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

/// A value as TOML, or as --help shows it: {} writes doubles with the fewest digits that read back the same.
template <class T>
std::string text_of(const T& value, bool quoted) {
  if constexpr (std::is_same_v<T, std::string>)
    return quoted ? quote_for_config(value) : value;
  else
    return fmt::format("{}", value);
}

/// Nothing for an optional without a value.
std::optional<std::string> text_of(const FlagTarget& target, bool quoted) {
  return std::visit(
      [&](auto* pointer) -> std::optional<std::string> {
        using T = std::remove_pointer_t<decltype(pointer)>;
        if constexpr (std::is_same_v<T, typename Unwrapped<T>::type>)
          return text_of(*pointer, quoted);
        else
          return pointer->has_value() ? std::optional(text_of(**pointer, quoted)) : std::nullopt;
      },
      target);
}

bool is_boolean(const FlagTarget& target) {
  return std::holds_alternative<bool*>(target) || std::holds_alternative<std::optional<bool>*>(target);
}

/// Breaks lines between words; the formatter indents each.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kColumns = 78;
  std::string lines;
  while (text.size() > kColumns) {
    const std::size_t space = text.rfind(' ', kColumns);
    if (space == std::string_view::npos) break;
    lines += std::string(text.substr(0, space)) + '\n';
    text.remove_prefix(space + 1);
  }
  return lines += text;
}

/// Shows a switch as --[no-]NAME.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(30); }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (option->get_fnames().empty()) return CLI::Formatter::make_option_name(option, is_positional);
    const std::string short_name =
        option->get_snames().empty() ? "" : fmt::format("-{},", option->get_snames().front());
    return short_name + "--[no-]" + option->get_lnames().front();
  }
};

std::string help_text(const std::string& help, const FlagTarget& target, const FlagDetails& details) {
  if (!details.in_config) return help;
  std::string text = help;
  if (!details.choices.empty()) text += fmt::format(": {}", fmt::join(details.choices, ", "));
  const std::string value = text_of(target, false).value_or("");
  const std::string shown = !details.default_is.empty() ? details.default_is : value.empty() ? "none" : value;
  return fmt::format("{} [default: {}]", text, shown);
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

void CommandLine::add(std::string name, FlagTarget target, std::string help, FlagDetails details) {
  help = help_text(help, target, details);
  flags_.push_back({std::move(name), std::move(help), heading_, target, std::move(details)});
}

void CommandLine::add_positionals(std::string name, std::vector<std::string>& target, std::string help) {
  positionals_name_ = std::move(name);
  positionals_help_ = std::move(help);
  positionals_ = &target;
}

bool CommandLine::parse(int argc, const char* const* argv) {
  CLI::App app(description_, program_);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print this and exit");
  app.set_version_flag("--version", fmt::format("{} {}", program_, kVersion), "Print the version and exit");
  app.allow_extras();  // so that the message about an unknown flag is ours
  std::vector<CLI::Option*> options;
  for (const Flag& flag : flags_) {
    const std::string short_name =
        flag.details.short_name == '\0' ? "" : fmt::format("-{},", flag.details.short_name);
    const std::string name = short_name + "--" + flag.name;
    CLI::Option* option = nullptr;
    if (!is_boolean(flag.target))
      option = app.add_option(name)->expected(1)->type_name(flag.details.value);
    else if (!flag.details.in_config)
      option = app.add_flag(name);
    else
      option = app.add_flag(fmt::format("{},!--no-{}", name, flag.name));
    options.push_back(option->description(wrapped(flag.help))->group(flag.heading));
  }
  if (positionals_ != nullptr)
    app.add_option(positionals_name_, *positionals_, positionals_help_)->type_name("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return false;
  } catch (const CLI::ParseError& error) {
    fail<UsageError>("{}", error.what());
  }
  const std::vector<std::string> unknown = app.remaining();
  for (const std::string& argument : unknown)
    if (argument.starts_with('-')) refuse_unknown(argument);
  if (!unknown.empty()) fail<UsageError>("'{}': no flag takes this argument", unknown.front());
  for (std::size_t i = 0; i < flags_.size(); ++i) {
    if (options[i]->count() == 0) continue;
    set(flags_[i], options[i]->results().back(), "--" + flags_[i].name);
    flags_[i].given = true;
  }
  return true;
}

void CommandLine::apply_config(const std::filesystem::path& path) {
  std::vector<std::string> seen;
  for (const ConfigEntry& entry : read_config_file(path)) {
    const std::string source = fmt::format("{}:{}: {}", path.string(), entry.line, entry.key);
    if (std::find(seen.begin(), seen.end(), entry.key) != seen.end())
      fail<UsageError>("{}: named twice", source);
    seen.push_back(entry.key);
    Flag* const flag = find(entry.key);
    if (flag == nullptr || !flag->details.in_config) {
      std::vector<std::string> keys;
      for (const Flag& known : flags_)
        if (known.details.in_config) keys.push_back(known.name);
      const std::string nearest = nearest_name(entry.key, keys);
      fail<UsageError>("{}: unknown key{}", source,
                       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
    }
    if (flag->given) continue;  // the command line wins
    set(*flag, entry.value, source);
  }
  for (const std::string& key : seen) find(key)->given = true;
}

bool CommandLine::given(std::string_view name) const {
  for (const Flag& flag : flags_)
    if (flag.name == name) return flag.given;
  return false;
}

std::string CommandLine::config() const {
  std::string text;
  for (const Flag& flag : flags_) {
    if (!flag.details.in_config) continue;
    if (const auto value = text_of(flag.target, true)) text += fmt::format("{} = {}\n", flag.name, *value);
  }
  return text;
}

CommandLine::Flag* CommandLine::find(std::string_view name) {
  for (Flag& flag : flags_)
    if (flag.name == name) return &flag;
  return nullptr;
}

void CommandLine::set(Flag& flag, const std::string& text, const std::string& source) {
  std::visit(
      [&](auto* pointer) {
        using T = typename Unwrapped<std::remove_pointer_t<decltype(pointer)>>::type;
        if constexpr (std::is_same_v<T, std::string>)
          *pointer = parse_string(text, source, flag.details);
        else if constexpr (std::is_same_v<T, bool>)
          *pointer = parse_bool(text, source);
        else
          *pointer = parse_number<T>(text, source, flag.details);
      },
      flag.target);
}

void CommandLine::refuse_unknown(const std::string& argument) const {
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> names = {"--help", "--version"};
  for (const Flag& known : flags_) {
    names.push_back("--" + known.name);
    if (is_boolean(known.target) && known.details.in_config) names.push_back("--no-" + known.name);
  }
  const std::string nearest = nearest_name(flag, names);
  fail<UsageError>("{}: unknown flag{} (--help lists all)", flag,
                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

}  // namespace convoy
