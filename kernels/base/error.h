// Error types and the process exit codes they map to. Does not use fmt, so device sources can include it. The
// types are values without shared state.
#pragma once

#include <stdexcept>
#include <string>

namespace convoy {

/// The exit code of a program. The README lists the codes for users.
enum class ExitCode : int {
  ok = 0,          // success
  usage = 2,       // invalid flags, configuration, arguments or shapes
  data = 3,        // an invalid data set, image or label file
  peer = 4,        // a failure of another rank or of a collective
  checkpoint = 5,  // a checkpoint that is missing, damaged, or belongs to another model
  numeric = 6,     // NaN, or an overflow that the smallest loss scale does not prevent
  device = 7,      // a device that does not exist, fails, or is out of memory
  output = 8,      // a file or directory that cannot be written
  storage = 9,     // a file that cannot be read at present: its device or file server fails
};

/// The base of all exceptions of this project. `main` prints what() on one line and returns code().
class Error : public std::runtime_error {
 public:
  /// `message` is what() returns: one line that names what was found and what was expected.
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// Returns the exit code of a program that ends with this error.
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// An error with a fixed exit code.
template <ExitCode kCode>
struct ErrorOf : Error {
  /// `message` is what() returns.
  explicit ErrorOf(const std::string& message) : Error(kCode, message) {}
};

using UsageError = ErrorOf<ExitCode::usage>;            ///< see ExitCode::usage
using DataError = ErrorOf<ExitCode::data>;              ///< see ExitCode::data
using PeerError = ErrorOf<ExitCode::peer>;              ///< see ExitCode::peer
using CheckpointError = ErrorOf<ExitCode::checkpoint>;  ///< see ExitCode::checkpoint
using NumericError = ErrorOf<ExitCode::numeric>;        ///< see ExitCode::numeric
using DeviceError = ErrorOf<ExitCode::device>;          ///< see ExitCode::device
using OutputError = ErrorOf<ExitCode::output>;          ///< see ExitCode::output
using StorageError = ErrorOf<ExitCode::storage>;        ///< see ExitCode::storage

/// An operation that cannot be captured in a CUDA graph (kernels/runtime/cuda_graph.h). The operation can
/// still run outside a capture.
struct CaptureError : DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace convoy
