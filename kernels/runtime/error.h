// Errors and the exit codes that they become. Free of fmt, so that device sources may include it.
#pragma once

#include <stdexcept>
#include <string>

namespace convoy {

/// What a program returns to its shell; users find the list in the README.
enum class ExitCode : int {
  ok = 0,
  usage = 2,       // flags, configuration, shapes: what the caller asked for cannot be
  data = 3,        // a data set, image or label file
  peer = 4,        // another rank, or a collective
  checkpoint = 5,  // a checkpoint that is missing, damaged, or of another model
  numeric = 6,     // NaN, or an overflow that does not end
  device = 7,      // no such device, or out of memory
  output = 8,      // a file or folder that cannot be written
};

/// The one exception type; `main` prints what() on one line and returns code().
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
struct ErrorOf : Error {
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using UsageError = ErrorOf<ExitCode::usage>;
using DataError = ErrorOf<ExitCode::data>;
using PeerError = ErrorOf<ExitCode::peer>;
using CheckpointError = ErrorOf<ExitCode::checkpoint>;
using NumericError = ErrorOf<ExitCode::numeric>;
using DeviceError = ErrorOf<ExitCode::device>;
using OutputError = ErrorOf<ExitCode::output>;

/// Work that cannot be recorded for replay (kernels/runtime/work_graph.h). It can run all the same.
struct CaptureError : DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace convoy
