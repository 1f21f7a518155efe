// CommandLine: the flags of one program, read from the command line and from a config file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
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
using FlagTarget = std::variant<std::string*, std::int64_t*, double*, bool*, std::optional<std::string>*,
                                std::optional<std::int64_t>*, std::optional<double>*, std::optional<bool>*,
                                std::optional<TrainingLength>*>;

/// The properties of a flag other than its name, target and help text.
struct FlagDetails {
  /// Short name without its dash: 'b' for -b.
  char short_name = '\0';
  /// Placeholder of the value in the help: "DIR".
  std::string value = "";
  /// Default to show in the help if the target's value does not express it: "sgd 0.2, adam 0.001".
  std::string default_text = "";
  /// Valid values; empty if any value is valid. The help lists them.
  std::vector<std::string> choices = {};
  /// Limits of a number, and of a TrainingLength that is a fraction.
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  /// Shown by --help-all only.
  bool advanced = false;
  /// Shown as required, in place of a default. The program itself checks for a value.
  bool required = false;
  /// False for an action, such as --dry-run, which is not a setting of the run.
  bool in_config = true;
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
  };

  /// description: the text at the top of the help.
  CommandLine(std::string program, std::string description);

  /// Puts the flags that are added next into the group `title` of the help. Groups are shown in the order of
  /// their first mention; the help omits a group that has no flags to show. "Other" should be the last group:
  /// --help, --help-all, --version and --completion are shown in it.
  void group(std::string title);
  /// Adds a flag. `name` has no dashes; a boolean setting also gets --no-NAME. `help` is a noun phrase with
  /// the unit, without a trailing period. `target` holds the default and must outlive the parsing.
  void add(std::string name, FlagTarget target, std::string help, FlagDetails details = {});
  /// Accepts arguments that are not flags and stores them in `target`.
  void add_positionals(std::string name, std::vector<std::string>& target, std::string help);

  /// Takes the first argument that is not a flag, and all that follow, as another program's command line, and
  /// stores them in `target`.
  void add_command(std::vector<std::string>& target, std::string help);

  /// Parses the arguments and sets the targets. Returns false if --help, --help-all, --version or --completion was given
  /// and has been printed. Of a flag that is given several times, the last value counts. Throws UsageError, with
  /// the nearest valid name, for an unknown flag, and for an invalid or missing value.
  bool parse(int argc, const char* const* argv);
  /// Sets the targets of the flags in the config file that the command line has not set. Throws UsageError
  /// for an unknown key or an invalid value.
  void apply_config(const std::filesystem::path& path);

  /// Sets the target of the flag `name` from text, unless the flag is given, and then counts as given. Returns whether
  /// it did. Throws UsageError, which begins with `source`, for an invalid value. The flag must exist.
  bool set_default(std::string_view name, const std::string& text, const std::string& source);

  /// Returns whether the flag was set on the command line, in the config file or by set_default().
  bool given(std::string_view name) const;
  /// Returns one `flag = value` line (TOML) for each setting that has a value.
  std::string config() const;
  /// Returns the text of --help, or of --help-all if `all` is true, in lines of at most 80 columns.
  std::string help(bool all) const;
  /// Returns a script that completes the flags in the shell "bash" or "zsh".
  std::string completion(const std::string& shell) const;
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  Flag* find(std::string_view name);
  void set(Flag& flag, const std::string& text, const std::string& source);
  /// Returns the flags with their dashes, --no-NAME included.
  std::vector<std::string> long_names() const;
  /// Returns whether an argument is one of long_names(), with or without "=value".
  bool is_flag(const std::string& argument) const;
  [[noreturn]] void refuse_unknown(const std::string& argument) const;

  std::string program_, description_;
  std::vector<std::string> groups_;
  std::string group_ = "Options";
  std::vector<Flag> flags_;
  std::string positionals_name_, positionals_help_;
  std::vector<std::string>* positionals_ = nullptr;
  std::vector<std::string>* command_ = nullptr;
};

}  // namespace convoy
