// The arguments of a program, divided into flags with their values and others.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace convoy {

/// The name of a flag on the command line.
struct ArgumentName {
  std::string name;                // without dashes
  char short_name = '\0';          // 'b' for -b
  bool is_switch = false;          // takes no value, except by --NAME=true and --NAME=false
  bool is_negatable = false;       // of a switch: there is --no-NAME, too
  std::string without_value = "";  // the value of a flag without one; empty: it needs one
};

/// The arguments of a program.
struct Arguments {
  std::vector<std::vector<std::string>>
      values;  // by flag, in the order of the command line; "true" for a switch
  std::vector<std::string> positionals;
  std::vector<std::string> rest;  // all others: unknown flags, and the command
};

/// Divides the arguments. Without `has_positionals`, an argument that is no flag is in `rest`; with
/// `has_command`, so are all that follow it. Throws UsageError for a flag without its value.
Arguments split_arguments(int argc, const char* const* argv, std::span<const ArgumentName> names,
                          bool has_positionals, bool has_command);

}  // namespace convoy
