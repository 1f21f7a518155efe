// CommandLine: one table of flags per program. It parses the command line and a config file, and writes every
// flag back as it was resolved.
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

/// Where a flag's value goes. An optional has no fixed default: the program resolves it from other flags.
using FlagTarget = std::variant<std::string*, std::int64_t*, double*, bool*, std::optional<std::string>*,
                                std::optional<std::int64_t>*, std::optional<double>*, std::optional<bool>*>;

struct FlagDetails {
  char short_name = '\0';       // 'b' for -b, beside the long name
  std::string value = "";       // what --help calls the value: "DIR"
  std::string default_is = "";  // what --help says of a default that no single value tells
  std::vector<std::string> choices = {};
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool in_config = true;  // false for what is an action rather than a setting: --dry-run
};

class CommandLine {
 public:
  CommandLine(std::string program, std::string description);

  /// Flags added from here on stand under this heading in --help.
  void heading(std::string text) { heading_ = std::move(text); }
  /// name without dashes. Booleans also get --no-NAME.
  void add(std::string name, FlagTarget target, std::string help, FlagDetails details = {});
  /// Takes arguments that are no flags.
  void add_positionals(std::string name, std::vector<std::string>& target, std::string help);

  /// Sets the targets. False where --help or --version was asked for and has been printed. UsageError, with
  /// the nearest name, for whatever it does not know.
  bool parse(int argc, const char* const* argv);
  /// Sets what the command line left open; an unknown key is a UsageError.
  void apply_config(const std::filesystem::path& path);

  /// Was this flag named, on the command line or in the config file?
  bool given(std::string_view name) const;
  /// One `flag = value` line for each flag that has a value.
  std::string config() const;

 private:
  struct Flag {
    std::string name, help, heading;
    FlagTarget target;
    FlagDetails details;
    bool given = false;
  };
  Flag* find(std::string_view name);
  void set(Flag& flag, const std::string& text, const std::string& source);
  [[noreturn]] void refuse_unknown(const std::string& argument) const;

  std::string program_, description_, heading_ = "Options";
  std::vector<Flag> flags_;
  std::string positionals_name_, positionals_help_;
  std::vector<std::string>* positionals_ = nullptr;
};

}  // namespace convoy
