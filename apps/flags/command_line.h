// CommandLine: the flags of one program, read from the command line and from a config file.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace convoy {

/// A length in a training: a fraction of all steps, or a number of steps or epochs.
struct TrainingLength {
  enum class Unit : std::uint8_t { fraction, steps, epochs };
  double value = 0;
  Unit unit = Unit::fraction;

  /// Makes a fraction of all steps.
  // NOLINTNEXTLINE: a number converts implicitly.
  TrainingLength(double fraction = 0) : value(fraction) {}
  /// Parses "0.2", "500steps" or "5epochs". Returns nullopt for another text.
  static std::optional<TrainingLength> parse(std::string_view text);
  /// Returns the text that parse() reads.
  std::string text() const;
  /// Returns the length in steps, rounded, in a training of this many.
  std::int64_t steps(std::int64_t total_steps, std::int64_t steps_per_epoch) const;
};

/// The variable that a flag sets. An optional has no fixed default: the program resolves it from other flags.
using FlagVariable = std::variant<std::string*, std::int64_t*, double*, bool*, TrainingLength*,
                                  std::array<double, 2>*, std::optional<std::string>*,
                                  std::optional<std::int64_t>*, std::optional<double>*, std::optional<bool>*>;

/// Where the value of a flag is stored: in a variable, as the alternative of a variant (choice_of()), or in a
/// member of some alternatives (member_of()).
class FlagTarget {
 public:
  // NOLINTNEXTLINE: a pointer converts implicitly.
  template <class T>
  requires std::constructible_from<FlagVariable, T*> FlagTarget(T* target)
      : variable([target] { return std::optional<FlagVariable>(target); }),
        is_boolean(std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) {}
  FlagTarget() = default;

  /// Returns the variable; nullopt for a choice, and for a member that the alternative does not have.
  std::function<std::optional<FlagVariable>()> variable = [] { return std::optional<FlagVariable>(); };
  bool is_boolean = false;
  /// Of a choice: returns the name of the alternative, or "" before settle(); and selects one, the default
  /// for "".
  std::function<std::string()> chosen = {};
  std::function<void(const std::string&)> select = {};
  /// Of a member: the flag of the choice, and the names of the alternatives that have it.
  std::string choice = "";
  std::vector<std::string> owners = {};
};

/// Returns the names of the alternatives of a variant, their constants kName.
template <class... Ts>
std::vector<std::string> names_of(const std::optional<std::variant<Ts...>>& /*choice*/) {
  return {Ts::kName...};
}
/// Returns the name of the alternative.
template <class... Ts>
std::string to_string(const std::variant<Ts...>& choice) {
  return std::visit([](const auto& alternative) { return std::string(alternative.kName); }, choice);
}
/// Sets the alternative of this name, with its default values. There must be one.
template <class... Ts>
void select_alternative(std::variant<Ts...>& choice, std::string_view name) {
  ((name == Ts::kName ? void(choice = Ts()) : void()), ...);
}

/// Returns the target of a flag that selects an alternative of `choice`. `make` returns the alternative of a
/// name with its defaults, and the default one for "".
template <class Variant, class Make>
FlagTarget choice_of(std::optional<Variant>& choice, Make make) {
  FlagTarget target;
  target.chosen = [&choice] { return choice ? to_string(*choice) : ""; };
  target.select = [&choice, make](const std::string& name) {
    if (!name.empty() || !choice) choice = make(name);
  };
  return target;
}

/// Returns the target of a flag that belongs to some alternatives of the flag --`flag`, whose target is
/// `choice`: the member of the selected one.
template <class Variant, class T, class... Owners>
FlagTarget member_of(const char* flag, std::optional<Variant>& choice, T Owners::*... members) {
  FlagTarget target(static_cast<T*>(nullptr));
  target.choice = flag;
  target.owners = {Owners::kName...};
  target.variable = [&choice, members...]() -> std::optional<FlagVariable> {
    T* found = nullptr;
    if (choice)
      ((std::holds_alternative<Owners>(*choice) ? void(found = &(std::get<Owners>(*choice).*members))
                                                : void()),
       ...);
    return found == nullptr ? std::nullopt : std::optional<FlagVariable>(found);
  };
  return target;
}

/// The properties of a flag other than its name, target and help text.
struct FlagDetails {
  /// Short name without its dash: 'b' for -b.
  char short_name = '\0';
  /// Placeholder of the value in the help: "DIR".
  std::string value = "";
  /// Default to show in the help if neither the target's value nor show_defaults() expresses it.
  std::string default_text = "";
  /// What the help adds to the default: "false with --momentum 0".
  std::string default_note = "";
  /// Valid values; empty if any value is valid. The help lists them.
  std::vector<std::string> choices = {};
  /// Limits of a number, of the numbers of a pair, and of a TrainingLength that is a fraction: those of the
  /// closed interval [minimum, maximum] and of the open one (above, below).
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  /// A word that the flag takes in place of a value: it sets `is_chosen`, and leaves the variable as it is until the
  /// program finds its value. Null: none.
  struct Word {
    std::string text;
    bool* is_chosen = nullptr;
  } word = {};
  /// Value that has no effect, so that it may be given with alternatives that do not have the flag: "0".
  std::string unused = "";
  /// What CommandLine::start_row() appends to a row for a value other than 0, none and false:
  /// {"batch", "seen {} times"}.
  struct StartText {
    std::string row, text;
  } start = {};
  /// Must not change between a checkpoint and its resumption; or may, and the learning rate follows the new
  /// schedule.
  bool fixed = false, reschedules = false;
  /// Shown by --help-all only.
  bool advanced = false;
  /// parse() refuses a command line without it. The help shows this in place of a default.
  bool required = false;
  /// False for an action, such as --dry-run, which is not a setting of the run.
  bool in_config = true;
  /// Value of the flag without one: "auto". Empty: the flag needs a value.
  std::string without_value = "";
  /// Whether several values of the flag count, joined by spaces, and not the last one alone.
  bool joins = false;
};

/// The table of a program's flags. It parses the command line and a config file, formats --help, and writes
/// the resolved flags as a config file.
class CommandLine {
 public:
  struct Flag {
    std::string name, help, group;
    FlagTarget target;
    FlagDetails details;
    bool given = false;
    std::string text = {}, source = {};  // of the value, if it is given
  };

  /// description: the text at the top of the help.
  CommandLine(std::string program, std::string description);

  /// Puts the flags that are added next into the group `title` of the help. Groups are shown in the order of
  /// their first mention; the help omits a group that has no flags to show. "Other" should be the last group:
  /// --help, --help-all and --version are shown in it. Of `shared`, `advanced` is true for all of these flags, and `fixed`
  /// for those that do not reschedule.
  void group(std::string title, const FlagDetails& shared = {});
  /// Adds a flag. `name` has no dashes; a boolean setting also gets --no-NAME. `help` is a noun phrase with
  /// the unit, without a trailing period. `target` holds the default and must outlive the parsing.
  void add(std::string name, FlagTarget target, std::string help, FlagDetails details = {});
  /// Lets the help show the defaults that `texts` returns, by name. The help alone calls it.
  void show_defaults(std::function<std::map<std::string, std::string>()> texts) {
    default_texts_ = std::move(texts);
  }
  /// Accepts arguments that are not flags and stores them in `target`.
  void add_positionals(std::string name, std::vector<std::string>& target, std::string help);

  /// Takes the first argument that is not a flag, and all that follow, as another program's command line, and
  /// stores them in `target`.
  void add_command(std::vector<std::string>& target, std::string help);

  /// Parses the arguments and sets the targets, apart from those that settle() sets. Returns false if --help,
  /// --help-all or --version was given and has been printed. Of a flag that is given several
  /// times, the last value counts. Throws UsageError, with the nearest valid name, for an unknown flag, and
  /// for an invalid or missing value.
  bool parse(int argc, const char* const* argv);
  /// Sets the targets of the flags in the config file that the command line has not set. Throws UsageError
  /// for an unknown key or an invalid value.
  void apply_config(const std::filesystem::path& path);

  /// Selects the alternatives of all choices, and sets their members. Call it after all functions that set
  /// flags; if more flags are set then, call it again. Throws UsageError for an invalid value, and for a flag
  /// that the selected alternative does not have.
  void settle();

  /// Returns whether the flag was set on the command line, or in the config file.
  bool given(std::string_view name) const;
  /// Returns the values of all flags that have one, as the help shows them, by name.
  std::map<std::string, std::string> values() const;
  /// Returns what the flags append to this row of the table at the start of a training: ", weight decay
  /// 0.01, …".
  std::string start_row(std::string_view row) const;
  /// Returns one `flag = value` line (TOML) for each setting that has a value.
  std::string config() const;
  /// Returns the text of --help, or of --help-all if `all` is true, in lines of at most 80 columns.
  std::string help(bool all) const;
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  /// Returns the flags of every program: --help, --help-all and --version.
  static const std::vector<Flag>& common_flags();
  const Flag* find(std::string_view name) const;
  Flag* find(std::string_view name) { return const_cast<Flag*>(std::as_const(*this).find(name)); }
  /// Takes the value of a flag, and sets its target unless settle() does.
  static void give(Flag& flag, std::string text, std::string source);
  /// Returns the flags with their dashes, --no-NAME included.
  std::vector<std::string> long_names() const;
  /// Returns whether an argument is one of long_names(), with or without "=value".
  bool is_flag(const std::string& argument) const;
  [[noreturn]] void refuse_unknown(const std::string& argument) const;

  std::string program_, description_;
  std::vector<std::string> groups_;
  std::string group_ = "Options";
  bool adds_advanced_ = false, adds_fixed_ = false;  // for the flags that are added next
  std::vector<Flag> flags_;
  std::function<std::map<std::string, std::string>()> default_texts_;
  std::string positionals_name_, positionals_help_;
  std::vector<std::string>* positionals_ = nullptr;
  std::vector<std::string>* command_ = nullptr;
};

}  // namespace convoy
