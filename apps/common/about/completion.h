// Shell completion of a program's flags.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace convoy {

/// A flag as a shell completes it.
struct CompletionFlag {
  std::vector<std::string> names;  // with dashes: "-b", "--minbytes"
  std::string help;                // one line
  /// Placeholder of the value; empty for a flag without one.
  std::string value = "";
  /// Words that are valid values.
  std::vector<std::string> words = {};
  /// Whether the value may be the name of a file or directory.
  bool is_file = false;
};

/// Returns a script for bash, which defines a function and registers it with `complete`. Arguments that are
/// not flags are completed as file names.
std::string bash_completion(const std::string& program, std::span<const CompletionFlag> flags);

/// Returns a script for zsh: a function for its completion system, which works as an autoloaded file
/// "_PROGRAM" and when it is sourced.
std::string zsh_completion(const std::string& program, std::span<const CompletionFlag> flags);

}  // namespace convoy
