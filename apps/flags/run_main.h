// The common main function of the programs, which reports an error as one line on stderr and an exit code.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// Flushes stdout and prints one line to stderr: "PROGRAM: error: WHAT", or "PROGRAM: error: [rank 1] WHAT"
/// for rank 1 of several.
void print_error(const char* program, const std::string& what, std::optional<int> rank = {});

/// Returns the rank that the launcher has assigned to this process, before any rendezvous; nullopt for a
/// single process, or if the launch environment is contradictory.
std::optional<int> launched_rank();

/// An error that has been printed already.
struct ReportedError : Error {
  using Error::Error;
};

/// The exit code and the message of a failed program.
struct Failure {
  ExitCode code;
  std::string what;
};
/// Returns the exit code and message for an exception.
Failure to_failure(const std::exception_ptr& exception);

/// Throws OutputError, which begins with the flag, if `file` cannot be written: it is a directory, or that which has it
/// does not exist or is read-only. For the beginning of a program, before the work whose result the file gets. Does
/// nothing for "", for "-" and on ranks other than 0, which write no results.
void check_output_file(std::string_view flag, const std::filesystem::path& file);

/// Lets a full disk be an error instead of a signal, and selects the CPU code of CONVOY_CPU_LEVEL. For the
/// beginning of a program.
void prepare_program();
/// Prints the exception that is being handled with launched_rank(), unless it is a ReportedError, and returns
/// the exit code: an Error has its own, std::bad_alloc becomes 7, a filesystem error 8, any other
/// std::exception 1.
int report_failure(const char* program);
/// Calls prepare_program() and `body`, and returns its result; that of report_failure() if it throws.
int run_main(const char* program, const std::function<int()>& body);

}  // namespace convoy
