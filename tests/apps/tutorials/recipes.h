// The commands of a page of the documentation.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace convoy::testing {

/// A block of code of a page.
struct Block {
  int line = 0;          // of the fence
  std::string heading;   // of its section
  std::string language;  // "" without one
  std::vector<std::string> lines;
};

/// A command of a page.
struct PageCommand {
  int line = 0;
  std::string heading;  // of its section
  std::string text;
};

/// Returns the fenced blocks of a page, and each indented line as a block without a language.
std::vector<Block> blocks_of(const std::filesystem::path& page);
/// Returns the commands in the `sh` blocks of a page. A line that ends with a backslash goes on in the next
/// one. Empty lines and comments are left out.
std::vector<PageCommand> commands_of(const std::filesystem::path& page);
/// Returns the spans of code in the text of a page that begin with a program and have arguments. Those of
/// mpirun and other launchers name a program of Convoy.
std::vector<PageCommand> spans_of(const std::filesystem::path& page);

/// Returns whether a command can run as it is: it has no placeholder ("…", DIR) and is not only the name of a
/// flag
/// ("convoy-evaluate --json").
bool is_complete(const std::string& command);
/// Returns the first word of a command, after variables that are set for it and the prompt "$".
std::string first_word(const std::string& command);

/// Commands by the heading of their section, in their order.
using Recipes = std::map<std::string, std::vector<std::string>>;

/// Returns commands_of() by heading.
Recipes recipes_of(const std::filesystem::path& page);
/// Returns the complete commands of spans_of() by heading.
Recipes inline_recipes_of(const std::filesystem::path& page);

}  // namespace convoy::testing
