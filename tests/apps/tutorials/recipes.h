// The commands of a page of the documentation.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace convoy::testing {

/// Commands by the heading of their section, in their order.
using Recipes = std::map<std::string, std::vector<std::string>>;

/// Returns the lines of the `sh` blocks of a page.
Recipes recipes_of(const std::filesystem::path& page);
/// Returns the commands of Convoy in the text of a page: spans of code that name one of its programs with arguments.
Recipes inline_recipes_of(const std::filesystem::path& page);

}  // namespace convoy::testing
