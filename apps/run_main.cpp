#include "apps/run_main.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

int report(const char* program, const char* what, ExitCode code) {
  print_error(program, what);
  return static_cast<int>(code);
}

}  // namespace

void print_error(const char* program, const std::string& what) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: error: {}\n", program, what);
}

int run_main(const char* program, const std::function<int()>& body) {
  // A file at the size limit of `ulimit -f` is then an error of write(), reported like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return body();
  } catch (const ReportedError& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    return report(program, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return report(program, "out of memory; lower --batch-size or --micro-batch-size", ExitCode::device);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(program, error.what(), ExitCode::output);
  } catch (const std::exception& error) {
    return report(program, error.what(), static_cast<ExitCode>(1));
  }
}

}  // namespace convoy
