#include "convoy/apps/flags/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <type_traits>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"

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

/// Returns the limits of a number: "at least 0 and at most 1000000".
template <class T>
std::string range_of(const FlagDetails& details) {
  std::vector<std::string> limits;
  const auto add = [&](const char* words, double limit) {
    if (std::isfinite(limit)) limits.push_back(fmt::format("{} {}", words, limit));
  };
  add("at least", details.minimum);
  add("more than", details.above);
  add("at most", details.maximum);
  add("less than", details.below);
  if (!std::isfinite(details.maximum) && !std::isfinite(details.below))
    limits.push_back(fmt::format("at most {}", std::numeric_limits<T>::max()));
  return fmt::format("{}", fmt::join(limits, " and "));
}

template <class T>
T parse_number(const std::string& text, const std::string& source, const FlagDetails& details) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end)
    fail<UsageError>("{}: found {}, which is out of range, expected {}", source, text, range_of<T>(details));
  if (error != std::errc() || stop != end || !std::isfinite(static_cast<double>(value)))
    fail<UsageError>("{}: found '{}', expected a {}", source, text,
                     std::is_integral_v<T> ? "whole number" : "number");
  const auto number = static_cast<double>(value);
  if (number < details.minimum)
    fail<UsageError>("{}: found {}, expected at least {}", source, text, details.minimum);
  if (number > details.maximum)
    fail<UsageError>("{}: found {}, expected at most {}", source, text, details.maximum);
  if (number <= details.above)
    fail<UsageError>("{}: found {}, expected more than {}", source, text, details.above);
  if (number >= details.below)
    fail<UsageError>("{}: found {}, expected less than {}", source, text, details.below);
  return value;
}

TrainingLength parse_length(const std::string& text, const std::string& source, const FlagDetails& details) {
  const std::optional<TrainingLength> length = TrainingLength::parse(text);
  if (!length)
    fail<UsageError>(
        "{}: found '{}', expected a fraction of all steps, or a number with a unit such as 500steps or "
        "5epochs",
        source, text);
  if (length->unit == TrainingLength::Unit::fraction)
    parse_number<double>(text, source, details);  // checks the limits
  return *length;
}

std::array<double, 2> parse_pair(const std::string& text, const std::string& source,
                                 const FlagDetails& details) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos)
    fail<UsageError>("{}: found '{}', expected two numbers and a comma", source, text);
  const std::string second = text.substr(std::min(text.find_first_not_of(' ', comma + 1), text.size()));
  return {parse_number<double>(text.substr(0, comma), source, details),
          parse_number<double>(second, source, details)};
}

bool parse_bool(const std::string& text, const std::string& source) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  fail<UsageError>("{}: found '{}', expected true or false", source, text);
}

std::string parse_string(const std::string& text, const std::string& source, const FlagDetails& details) {
  const auto& choices = details.choices;
  if (choices.empty() || std::ranges::find(choices, text) != choices.end()) return text;
  const std::string nearest = nearest_name(text, choices);
  fail<UsageError>("{}: found '{}', expected {}{}", source, text, fmt::join(choices, ", "),
                   nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

/// Formats a value as TOML if `quoted`, else as the help shows it. fmt writes a double with the minimum
/// number of digits that parse to the same value.
template <class T>
std::string format_value(const T& value, bool quoted) {
  if constexpr (std::is_same_v<T, std::string>)
    return quoted ? quote_for_config(value) : value;
  else if constexpr (std::is_same_v<T, TrainingLength>)
    return value.unit == TrainingLength::Unit::fraction ? value.text() : format_value(value.text(), quoted);
  else if constexpr (std::is_same_v<T, std::array<double, 2>>)
    return format_value(fmt::format("{},{}", value[0], value[1]), quoted);
  else
    return fmt::format("{}", value);
}

/// Returns nullopt for an optional without a value, a choice without an alternative, and a member that its alternative
/// does not have.
std::optional<std::string> format_value(const FlagTarget& target, const FlagDetails& details, bool quoted) {
  if (details.word.is_chosen != nullptr && *details.word.is_chosen)
    return format_value(details.word.text, quoted);
  if (target.chosen) {
    const std::string name = target.chosen();
    return name.empty() ? std::nullopt : std::optional(format_value(name, quoted));
  }
  const std::optional<FlagVariable> variable = target.variable();
  if (!variable) return std::nullopt;
  return std::visit(
      [&](auto* pointer) -> std::optional<std::string> {
        using T = std::remove_pointer_t<decltype(pointer)>;
        if constexpr (std::is_same_v<T, typename Unwrapped<T>::type>)
          return format_value(*pointer, quoted);
        else
          return pointer->has_value() ? std::optional(format_value(**pointer, quoted)) : std::nullopt;
      },
      *variable);
}

/// Sets the variable of a flag from text.
void set_variable(const FlagVariable& variable, const std::string& text, const std::string& source,
                  const FlagDetails& details) {
  std::visit(
      [&](auto* pointer) {
        using T = typename Unwrapped<std::remove_pointer_t<decltype(pointer)>>::type;
        if constexpr (std::is_same_v<T, std::string>)
          *pointer = parse_string(text, source, details);
        else if constexpr (std::is_same_v<T, bool>)
          *pointer = parse_bool(text, source);
        else if constexpr (std::is_same_v<T, TrainingLength>)
          *pointer = parse_length(text, source, details);
        else if constexpr (std::is_same_v<T, std::array<double, 2>>)
          *pointer = parse_pair(text, source, details);
        else
          *pointer = parse_number<T>(text, source, details);
      },
      variable);
}

/// Returns "sgd, adam or muon".
std::string join_alternatives(const std::vector<std::string>& names) {
  const std::span<const std::string> others(names.data(), names.size() - 1);
  return fmt::format("{}{}{}", fmt::join(others, ", "), others.empty() ? "" : " or ", names.back());
}

}  // namespace

std::optional<TrainingLength> TrainingLength::parse(std::string_view text) {
  TrainingLength length;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, length.value);
  if (error != std::errc() || !std::isfinite(length.value) || length.value < 0 || length.value > 1e12)
    return std::nullopt;
  const std::string_view unit(stop, end);
  if (unit == "steps" || unit == "step")
    length.unit = Unit::steps;
  else if (unit == "epochs" || unit == "epoch")
    length.unit = Unit::epochs;
  else if (!unit.empty())
    return std::nullopt;
  return length;
}

std::string TrainingLength::text() const {
  return fmt::format("{}{}", value, unit == Unit::fraction ? "" : unit == Unit::steps ? "steps" : "epochs");
}

std::int64_t TrainingLength::steps(std::int64_t total_steps, std::int64_t steps_per_epoch) const {
  const std::int64_t of_unit = unit == Unit::fraction ? total_steps
                               : unit == Unit::steps  ? 1
                                                      : steps_per_epoch;
  return std::llround(value * static_cast<double>(of_unit));
}

CommandLine::CommandLine(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

void CommandLine::group(std::string title, const FlagDetails& shared) {
  group_ = std::move(title);
  adds_advanced_ = shared.advanced;
  adds_fixed_ = shared.fixed;
  if (std::ranges::find(groups_, group_) == groups_.end()) groups_.push_back(group_);
}

void CommandLine::add(std::string name, FlagTarget target, std::string help, FlagDetails details) {
  if (groups_.empty()) group(group_);
  details.advanced |= adds_advanced_;
  details.fixed |= adds_fixed_ && !details.reschedules;
  flags_.push_back({std::move(name), std::move(help), group_, std::move(target), std::move(details)});
}

void CommandLine::add_positionals(std::string name, std::vector<std::string>& target, std::string help) {
  positionals_name_ = std::move(name);
  positionals_help_ = std::move(help);
  positionals_ = &target;
}

void CommandLine::add_command(std::vector<std::string>& target, std::string help) {
  positionals_name_ = "PROGRAM";
  positionals_help_ = std::move(help);
  command_ = &target;
}

const std::vector<CommandLine::Flag>& CommandLine::common_flags() {
  static const std::vector<Flag> kFlags = [] {
    FlagTarget on_or_off;
    on_or_off.is_boolean = true;
    const auto flag = [](const char* name, const FlagTarget& target, const char* help, FlagDetails details) {
      details.in_config = false;
      return Flag{.name = name, .help = help, .group = {}, .target = target, .details = std::move(details)};
    };
    return std::vector<Flag>{
        flag("help", on_or_off, "Print the common flags and exit", {.short_name = 'h'}),
        flag("help-all", on_or_off, "Print all flags and exit", {}),
        flag("version", on_or_off, "Print version, devices and libraries, and exit", {})};
  }();
  return kFlags;
}

void CommandLine::give(Flag& flag, std::string text, std::string source) {
  flag.given = true;
  flag.text = std::move(text);
  flag.source = std::move(source);
  if (!flag.target.choice.empty() || flag.target.select) return;
  if (const FlagDetails::Word& word = flag.details.word; word.is_chosen != nullptr) {
    *word.is_chosen = flag.text == word.text;
    if (*word.is_chosen) return;
  }
  set_variable(*flag.target.variable(), flag.text, flag.source, flag.details);
}

void CommandLine::settle() {
  for (Flag& flag : flags_) {
    if (flag.target.select)
      flag.target.select(flag.given ? parse_string(flag.text, flag.source, flag.details) : "");
    if (flag.target.choice.empty() || !flag.given) continue;
    const std::optional<FlagVariable> variable = flag.target.variable();
    if (variable)
      set_variable(*variable, flag.text, flag.source, flag.details);
    else if (flag.text != flag.details.unused)
      fail<UsageError>("{}: not supported with --{} {}, expected --{} {}", flag.source, flag.target.choice,
                       find(flag.target.choice)->target.chosen(), flag.target.choice,
                       join_alternatives(flag.target.owners));
  }
}

void CommandLine::apply_config(const std::filesystem::path& path) {
  std::vector<std::string> seen;
  for (ConfigEntry& entry : read_config_file(path)) {
    const std::string source = fmt::format("{}:{}: {}", path.string(), entry.line, entry.key);
    if (std::ranges::find(seen, entry.key) != seen.end()) fail<UsageError>("{}: duplicate key", source);
    seen.push_back(entry.key);
    Flag* const flag = find(entry.key);
    if (flag == nullptr || !flag->details.in_config) {
      std::vector<std::string> keys;
      for (const Flag& known : flags_)
        if (known.details.in_config) keys.push_back(known.name);
      fail<UsageError>("{}: unknown key{}", source, suggestion(entry.key, keys, ""));
    }
    if (!flag->given) give(*flag, entry.value, source);  // the command line has precedence
  }
}

bool CommandLine::given(std::string_view name) const {
  const Flag* const flag = find(name);
  return flag != nullptr && flag->given;
}

std::map<std::string, std::string> CommandLine::values() const {
  std::map<std::string, std::string> texts;
  for (const Flag& flag : flags_)
    if (const auto value = format_value(flag.target, flag.details, false)) texts[flag.name] = *value;
  return texts;
}

std::string CommandLine::start_row(std::string_view row) const {
  std::string all;
  for (const Flag& flag : flags_) {
    if (flag.details.start.row != row) continue;
    std::string value = format_value(flag.target, flag.details, false).value_or("");
    // Six digits say enough of a default that is a quotient.
    if (const auto number = number_in<double>(value); number && value.size() > 8)
      value = fmt::format("{:.6g}", *number);
    if (value.empty() || value == "0" || value == "none" || value == "false") continue;
    all += ", " + fmt::format(fmt::runtime(flag.details.start.text), value);
  }
  return all;
}

std::string CommandLine::config() const {
  std::string text;
  for (const Flag& flag : flags_) {
    if (!flag.details.in_config) continue;
    if (const auto value = format_value(flag.target, flag.details, true))
      text += fmt::format("{} = {}\n", flag.name, *value);
  }
  return text;
}

const CommandLine::Flag* CommandLine::find(std::string_view name) const {
  for (const Flag& flag : flags_)
    if (flag.name == name) return &flag;
  return nullptr;
}

}  // namespace convoy
