#include "convoy/apps/flags/run_main.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {

void print_error(const char* program, const std::string& what, std::optional<int> rank) {
  std::fflush(stdout);
  const std::string by = rank ? fmt::format("[rank {}] ", *rank) : "";
  fmt::print(stderr, "{}: error: {}{}\n", program, by, without_control_characters(what));
}

std::optional<int> launched_rank() {
  try {
    const std::optional<dist::Launch> launch = dist::launch_from(dist::environment_variables());
    if (launch && launch->world_size > 1) return launch->rank;
  } catch (const Error&) {  // a contradictory environment, which the rendezvous reports
  }
  return std::nullopt;
}

Failure to_failure(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.code(), message_with_flag(error)};
  } catch (const std::bad_alloc&) {
    return {ExitCode::device, "out of memory; lower --batch-size or --micro-batch-size"};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? "a file" : error.path1().string();
    return {ExitCode::output, fmt::format("{}: {}", path, error.code().message())};
  } catch (const std::exception& error) {
    return {static_cast<ExitCode>(1), error.what()};
  }
}

void check_output_file(std::string_view flag, const std::filesystem::path& file) {
  if (file.empty() || file == "-" || launched_rank().value_or(0) != 0) return;
  const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    fail<OutputError>("{} {}: found a directory, expected a file", flag, file.string());
  if (!std::filesystem::is_directory(directory, error))
    fail<OutputError>("{} {}: there is no directory {}, expected an existing one", flag, file.string(),
                      directory.string());
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    fail<OutputError>("{} {}: {} cannot be written: {}", flag, file.string(), directory.string(),
                      std::strerror(errno));
}

void prepare_program() {
  // With SIGXFSZ ignored, exceeding the file size limit (`ulimit -f`) is an error of write(), like a full
  // disk.
  std::signal(SIGXFSZ, SIG_IGN);
  use_cpu_level_of_environment();
}

int report_failure(const char* program) try { throw; } catch (const ReportedError& error) {
  return static_cast<int>(error.code());
} catch (const std::exception&) {
  const Failure failure = to_failure(std::current_exception());
  print_error(program, failure.what, launched_rank());
  return static_cast<int>(failure.code);
}

int run_main(const char* program, const std::function<int()>& body) try {
  prepare_program();
  return body();
} catch (const std::exception&) {
  return report_failure(program);
}

}  // namespace convoy
