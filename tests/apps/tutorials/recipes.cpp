#include "tests/apps/tutorials/recipes.h"

#include <regex>
#include <sstream>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

/// Calls f(heading, line, language) for each line, with the language of the block that it is in: "" outside of one.
template <class F>
void for_each_line(const std::filesystem::path& page, F&& f) {
  std::istringstream lines(read_text(page));
  std::string heading, language;
  bool is_block = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      is_block = !is_block;
      language = is_block ? line.substr(3) : "";
      continue;
    }
    if (!is_block && line.starts_with("## ")) heading = line.substr(3);
    f(heading, line, language);
  }
}

}  // namespace

Recipes recipes_of(const std::filesystem::path& page) {
  Recipes found;
  for_each_line(page, [&](const std::string& heading, const std::string& line, const std::string& language) {
    if (language == "sh") found[heading].push_back(line);
  });
  return found;
}

Recipes inline_recipes_of(const std::filesystem::path& page) {
  static const std::regex kSpan("`((?:mpirun|torchrun|convoy-[a-z-]+) [^`]*)`");
  Recipes found;
  for_each_line(page, [&](const std::string& heading, const std::string& line, const std::string& language) {
    if (!language.empty()) return;
    for (std::sregex_iterator span(line.begin(), line.end(), kSpan), end; span != end; ++span)
      if (const std::string command = (*span)[1]; command.find("convoy-") != std::string::npos)
        found[heading].push_back(command);
  });
  return found;
}

}  // namespace convoy::testing
