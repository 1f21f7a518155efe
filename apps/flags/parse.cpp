// The command line, divided into flags with their values and others by CLI11. Included in this file only: it takes seconds
// to compile.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "convoy/apps/common/machine.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// Lets CLI11 find a flag. A boolean one takes no value, except by --NAME=true and --NAME=false.
const CLI::Option* add_flag(CLI::App& app, const CommandLine::Flag& flag) {
  const FlagDetails& details = flag.details;
  std::string name = "--" + flag.name;
  if (details.short_name != '\0') name = fmt::format("-{},{}", details.short_name, name);
  if (flag.target.is_boolean)
    return app.add_flag(details.in_config ? fmt::format("{},!--no-{}", name, flag.name) : name);
  return app.add_option(name)
      ->expected(details.without_value.empty() ? 1 : 0, 1)
      ->default_str(details.without_value)
      ->take_last();
}

}  // namespace

bool CommandLine::parse(int argc, const char* const* argv) {
  CLI::App app;
  app.set_help_flag();  // the program has its own
  app.allow_extras();
  app.prefix_command(command_ != nullptr);
  std::vector<const CLI::Option*> options;
  for (const std::vector<Flag>* const flags : {&std::as_const(flags_), &common_flags()})
    for (const Flag& flag : *flags) options.push_back(add_flag(app, flag));
  if (positionals_ != nullptr) app.add_option("arguments", *positionals_);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // begins with the name
    fail<UsageError>("{}: its value is missing", text.substr(0, text.find(':')));
  } catch (const CLI::ParseError& error) {
    fail<UsageError>("{}", error.what());
  }
  const auto is_given = [&](std::size_t i) { return !options[i]->results().empty(); };
  const std::size_t common = flags_.size();  // the first one of common_flags()
  if (is_given(common) || is_given(common + 1)) {
    fmt::print("{}", help(is_given(common + 1)));
    return false;
  }
  if (is_given(common + 2)) {
    fmt::print("{}\n", version_text(program_));
    return false;
  }
  // Whatever follows a flag has been taken as its value.
  for (std::size_t i = 0; i < flags_.size(); ++i)
    for (const std::string& value : options[i]->results())
      if (!flags_[i].target.is_boolean && is_flag(value))
        fail<UsageError>("--{}: its value is missing, found the flag {}", flags_[i].name, value);
  std::vector<std::string> rest = app.remaining();
  if (command_ != nullptr && !rest.empty() && !rest.front().starts_with('-'))
    *command_ = std::exchange(rest, {});
  for (const std::string& argument : rest)
    if (argument.starts_with('-')) refuse_unknown(argument);
  if (!rest.empty()) {
    std::string hint;
    for (std::size_t i = 0; i < flags_.size() && hint.empty(); ++i)
      if (flags_[i].details.required && !is_given(i))
        hint = fmt::format("; did you mean --{} {}?", flags_[i].name, rest.front());
    fail<UsageError>("'{}': unexpected argument, expected a flag{}", rest.front(), hint);
  }
  bool has_config = false;
  for (std::size_t i = 0; i < flags_.size(); ++i)
    if (flags_[i].name == "config") has_config = is_given(i);
  for (std::size_t i = 0; i < flags_.size(); ++i)
    if (is_given(i)) {
      const std::string& value = options[i]->results().back();
      const std::string& kind = flags_[i].details.value;
      // A variable of a script that is not set, unless it replaces another value.
      if (value.empty() && (kind.starts_with("FILE") || kind.ends_with("DIR")) && !has_config &&
          options[i]->results().size() == 1)
        fail<UsageError>("--{}: found '', expected {}", flags_[i].name, kind);
      give(flags_[i],
           flags_[i].details.joins ? fmt::format("{}", fmt::join(options[i]->results(), " ")) : value,
           "--" + flags_[i].name);
    } else if (flags_[i].details.required)
      fail<UsageError>("--{}: missing, expected --{} {}", flags_[i].name, flags_[i].name,
                       flags_[i].details.value);
  return true;
}

std::vector<std::string> CommandLine::long_names() const {
  std::vector<std::string> names;
  for (const std::vector<Flag>* const flags : {&common_flags(), &flags_})
    for (const Flag& known : *flags) {
      names.push_back("--" + known.name);
      if (known.target.is_boolean && known.details.in_config) names.push_back("--no-" + known.name);
    }
  return names;
}

bool CommandLine::is_flag(const std::string& argument) const {
  const std::vector<std::string> names = long_names();
  return std::ranges::find(names, argument.substr(0, argument.find('='))) != names.end();
}

void CommandLine::refuse_unknown(const std::string& argument) const {
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> names;
  for (const std::string& name : long_names()) names.push_back(name.substr(2));
  fail<UsageError>("{}: unknown flag{} (--help-all lists all flags)", flag, suggestion(flag, names, "--"));
}

}  // namespace convoy
