// The ranks of a program that this process has: one, or with --devices a thread for each device.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "apps/compute.h"
#include "apps/job.h"

namespace convoy {

/// --devices, of programs whose ranks may be threads.
void add_devices_flag(CommandLine& line, JobOptions& options);

class LocalRanks {
 public:
  /// A process with one rank meets the others here. UsageError for --devices with flags that say otherwise,
  /// or in one of several processes; DeviceError where there are fewer GPUs.
  LocalRanks(const JobOptions& options, const ComputeOptions& compute);

  /// Calls body once a rank, in a thread of its own where there are several, and returns what rank 0's
  /// returns. What a rank throws ends the others, too; its line is printed once, and goes on as
  /// ReportedError. All threads have ended by then, or the process does, when one hangs (Endings).
  int run(const char* program, const std::function<int(Job&)>& body);

 private:
  int run_threads(const char* program, const std::function<int(Job&)>& body);

  JobOptions options_;
  std::optional<Job> job_;  // of a process with one rank
};

/// Where the devices of --devices are parts of a CPU that has fewer cores.
std::optional<std::string> warning_of_cores(const Job& job, const Device& device);

}  // namespace convoy
