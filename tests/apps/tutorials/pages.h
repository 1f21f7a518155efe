// The pages of the documentation, and the commands that no test runs from their text.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "tests/apps/tutorials/recipes.h"

namespace convoy::testing {

/// A page whose commands pages_test.cpp runs.
struct Page {
  const char* path;          // from the root of the project
  const char* prepare = "";  // commands that make what the page assumes, such as finished runs

  friend std::ostream& operator<<(std::ostream& out, const Page& page) { return out << page.path; }
};

/// A command that is not run from the text.
struct Exception {
  const char* page;    // beginning of the path; "" for all pages
  const char* begins;  // beginning of the command, or of what follows its variables
  const char* reason;
  const char* test = "";  // runs an equivalent: a suite, or a test of Python or CMake; "" without one
};

/// Returns the pages of pages_test.cpp.
std::span<const Page> pages();
std::span<const Exception> exceptions();
/// Returns the exception for a command of a page; null if it is to be run.
const Exception* exception_for(const std::string& page, const std::string& command);

/// Returns the path of each Markdown file of the project but the change log, from its root.
std::vector<std::string> all_pages();
/// Returns the commands of a page that are to be run: those of its blocks, then the complete ones of its
/// text.
std::vector<PageCommand> runnable_commands_of(const std::string& page);

}  // namespace convoy::testing
