#include "tests/apps/tutorials/recipes.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

/// Calls text(line number, heading, line) for each line outside of blocks. Returns the blocks.
template <class F>
std::vector<Block> read_page(const std::filesystem::path& page, F&& text) {
  std::istringstream lines(read_text(page));
  std::vector<Block> blocks;
  std::string heading;
  bool is_block = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      is_block = !is_block;
      if (is_block) blocks.push_back({.line = number, .heading = heading, .language = line.substr(3)});
    } else if (is_block) {
      blocks.back().lines.push_back(line);
    } else {
      if (line.starts_with("## ")) heading = line.substr(3);
      if (line.starts_with("    ")) blocks.push_back({number, heading, "", {line}});
      text(number, heading, line);
    }
  }
  return blocks;
}

std::string squeezed(const std::string& text) {
  static const std::regex kSpace("\\s+");
  return std::regex_replace(text, kSpace, " ");
}

Recipes by_heading(const std::vector<PageCommand>& commands) {
  Recipes found;
  for (const PageCommand& command : commands) found[command.heading].push_back(command.text);
  return found;
}

}  // namespace

std::vector<Block> blocks_of(const std::filesystem::path& page) {
  return read_page(page, [](int, const std::string&, const std::string&) {});
}

std::vector<PageCommand> commands_of(const std::filesystem::path& page) {
  std::vector<PageCommand> found;
  for (const Block& block : blocks_of(page)) {
    if (block.language != "sh") continue;
    bool goes_on = false;
    for (std::size_t i = 0; i < block.lines.size(); ++i) {
      std::string line = block.lines[i];
      const bool is_part = goes_on;
      if (!is_part && (line.empty() || line.starts_with("#"))) continue;
      goes_on = line.ends_with("\\");
      if (goes_on) line.pop_back();
      if (is_part)
        found.back().text += line;
      else
        found.push_back(
            {.line = block.line + 1 + static_cast<int>(i), .heading = block.heading, .text = line});
    }
  }
  return found;
}

std::vector<PageCommand> spans_of(const std::filesystem::path& page) {
  static const std::regex kProgram(
      "(?:[A-Z_]+=\\S+ )*(?:convoy-[a-z-]+|scripts/\\w+\\.\\w+|bench/\\w+\\.sh|build/\\w+/bin/\\w+|python3|cmake|"
      "ctest|export|mpirun|torchrun|srun) .+");
  static const std::regex kLauncher("(?:[A-Z_]+=\\S+ )*(?:mpirun|torchrun|srun) .*");
  std::vector<PageCommand> found;
  bool is_open = false;  // a span has begun
  PageCommand span;
  read_page(page, [&](int number, const std::string& heading, const std::string& line) {
    if (line.empty() || line.starts_with("|"))
      is_open = false;  // a span does not go on beyond a paragraph or a row
    if (is_open) span.text += " ";
    for (const char c : line) {
      if (c != '`') {
        if (is_open) span.text += c;
        continue;
      }
      if (is_open) {
        span.text = squeezed(span.text);
        if (std::regex_match(span.text, kProgram) &&
            (!std::regex_match(span.text, kLauncher) || span.text.find(" convoy-") != std::string::npos))
          found.push_back(span);
      }
      is_open = !is_open;
      span = {.line = number, .heading = heading, .text = ""};
    }
  });
  return found;
}

std::string first_word(const std::string& command) {
  static const std::regex kFirst("\\s*(?:\\$ )?(?:\\w+=\\S* )*(\\S+)(?:.|\\n)*");
  std::smatch match;
  return std::regex_match(command, match, kFirst) ? match[1].str() : "";
}

bool is_complete(const std::string& command) {
  static const std::regex kPlaceholder("…|(?:^|[ =/:,])[A-Z]{2,}(?:[ /:,.]|$)");
  static const std::regex kMention("\\S+(?: --?\\S+)?|convoy-launch (?:(?!convoy-).)*");
  return !std::regex_search(command, kPlaceholder) && !std::regex_match(command, kMention);
}

Recipes recipes_of(const std::filesystem::path& page) { return by_heading(commands_of(page)); }

Recipes inline_recipes_of(const std::filesystem::path& page) {
  std::vector<PageCommand> spans = spans_of(page);
  std::erase_if(spans, [](const PageCommand& span) { return !is_complete(span.text); });
  return by_heading(spans);
}

}  // namespace convoy::testing
