// The error of one option of the library. A program can name its own flag in place of the option.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// An invalid value of an option. what() returns "OPTION: PROBLEM".
class OptionError : public UsageError {
 public:
  /// `option` is the name of a member of the library's options, or of a function that parses it: "LoaderOptions::workers".
  /// `problem` says what was found and what was expected.
  OptionError(std::string option, std::string problem)
      : UsageError(fmt::format("{}: {}", option, problem)),
        option_(std::move(option)),
        problem_(std::move(problem)) {}

  const std::string& option() const { return option_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string option_, problem_;
};

/// Throws OptionError with the formatted problem.
template <class... Args>
[[noreturn]] void fail_option(const char* option, fmt::format_string<Args...> problem, Args&&... args) {
  throw OptionError(option, fmt::format(problem, std::forward<Args>(args)...));
}

/// Does so if `condition` is false.
template <class... Args>
void check_option(bool condition, const char* option, fmt::format_string<Args...> problem, Args&&... args) {
  if (!condition) fail_option(option, problem, std::forward<Args>(args)...);
}

}  // namespace convoy
