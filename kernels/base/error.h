// Error types and the process exit codes they map to. Does not use fmt, so device sources can include it.
#pragma once

#include <stdexcept>
#include <string>

namespace convoy {

/// The exit code of a program. The README lists the codes for users.
enum class ExitCode : int {
  ok = 0,
  usage = 2,       // invalid flags, configuration, arguments or shapes
  data = 3,        // an invalid data set, image or label file
  peer = 4,        // a failure of another rank or of a collective
  checkpoint = 5,  // a checkpoint that is missing, damaged, or belongs to another model
  numeric = 6,     // NaN, or an overflow that the smallest loss scale does not prevent
  device = 7,      // a device that does not exist, fails, or is out of memory
  output = 8,      // a file or directory that cannot be written
};

/// The base of all exceptions of this project. `main` prints what() on one line and returns code().
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// An error with a fixed exit code.
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

/// An operation that cannot be captured in a CUDA graph (kernels/runtime/cuda_graph.h). The operation can
/// still run outside a capture.
struct CaptureError : DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace convoy
