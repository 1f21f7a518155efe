// The ranks of this process: one or, with --devices, one thread per device.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "convoy/apps/flags/compute.h"
#include "convoy/apps/ranks/job.h"

namespace convoy {

/// Adds --devices, for programs whose ranks may be threads.
void add_devices_flag(CommandLine& line, JobOptions& options);

/// The ranks of this process. Runs the same function on each of them.
class LocalRanks {
 public:
  /// Checks --devices. If the process has one rank, runs its rendezvous, which blocks until all ranks are
  /// present. Throws UsageError if --devices contradicts other flags or the process is one of several, and
  /// DeviceError if there are too few GPUs.
  LocalRanks(const JobOptions& options, const ComputeOptions& compute);

  /// Calls `body` once per rank, each in its own thread if there are several, and returns the result of rank
  /// 0. Blocks until all ranks are done. If a rank throws, prints its error and ends the other ranks, which
  /// print theirs. Then throws ReportedError with the code of the first error that is not the loss of a peer,
  /// if there is one. If a thread is unresponsive for --comm-timeout after the first error, ends the process
  /// with that code.
  int run(const char* program, const std::function<int(Job&)>& body);

 private:
  /// The rank of one thread.
  LocalRanks(const JobOptions& options, std::unique_ptr<dist::Rendezvous> rendezvous,
             std::function<void(ExitCode)> on_failure)
      : options_(options) {
    job_.emplace(options, std::move(rendezvous), std::move(on_failure));
  }
  int run_threads(const char* program, const std::function<int(Job&)>& body);

  JobOptions options_;
  std::optional<Job> job_;  // none if the ranks are threads
};

/// Returns a warning if --devices divides a CPU into more ranks than it has cores.
std::optional<std::string> oversubscription_warning(const Job& job, const DeviceContext& device);

}  // namespace convoy
