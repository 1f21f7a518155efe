// What every program's main is made of: errors become one line on stderr and the documented exit code.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "kernels/runtime/error.h"

namespace convoy {

/// "PROGRAM: error: WHAT" on stderr, after all that stdout has got.
void print_error(const char* program, const std::string& what);

/// An error whose line is out already.
struct ReportedError : Error {
  using Error::Error;
};

/// What an exception means to who called the program.
struct Failure {
  ExitCode code;
  std::string what;
};
Failure failure_of(const std::exception_ptr& exception);

/// Runs `body` and returns its result. An Error becomes "PROGRAM: error: …" and its code, anything else
/// thrown (out of memory, a bug) becomes the same line and code 7 or 1.
int run_main(const char* program, const std::function<int()>& body);

}  // namespace convoy
