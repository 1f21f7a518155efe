// Errors that carry names of the library as data, in whose place a program can name its own flags.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// An invalid value of an option. what() returns "OPTION: PROBLEM".
class OptionError : public UsageError {
 public:
  /// `option` is the name of a member of the library's options, "LoaderOptions::workers", or of a function
  /// that parses it. `problem` says what was found and what was expected.
  OptionError(std::string option, std::string problem)
      : UsageError(fmt::format("{}: {}", option, problem)),
        option_(std::move(option)),
        problem_(std::move(problem)) {}

  const std::string& option() const { return option_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string option_, problem_;
};

/// What an error advises the caller to do, by names of the library: the end of what().
class Remedy {
 public:
  explicit Remedy(std::string remedy) : remedy_(std::move(remedy)) {}
  const std::string& remedy() const { return remedy_; }

 private:
  std::string remedy_;
};

/// An error of type E with a remedy. what() returns "PROBLEM; REMEDY".
template <class E>
struct ErrorWithRemedy : E, Remedy {
  ErrorWithRemedy(const std::string& problem, const std::string& remedy)
      : E(fmt::format("{}; {}", problem, remedy)), Remedy(remedy) {}
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
