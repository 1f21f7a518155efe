// The machine of this process, and what other processes use of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// A description of the machine and of the libraries of this process, for reports.
struct Machine {
  std::string processor;   // "AMD EPYC 9554"
  std::string system;      // "Linux 6.1.0, x86_64"
  int online_cores = 0;    // of the machine
  std::vector<int> cores;  // that this process may use
  std::uint64_t memory_bytes = 0, memory_available = 0;
  std::vector<std::string> libraries;  // "oneDNN 2.6.3"
};
Machine this_machine();

/// Returns the text of --version: the version, and lines with the build type and compiler, the devices and the
/// libraries:
///
///   convoy-train 0.1.0
///   build      Release, GNU 12.2.0, CPU only, CPU kernels: native
///   devices    CPU with 2 cores; no GPU: this build has no CUDA; use the CPU, or configure with the cuda preset
///   libraries  oneDNN 2.6.3, OpenBLAS 0.3.21, libjpeg-turbo 2.1.5, fmt 9.1.0, Open MPI v4.1.4
std::string version_text(const std::string& program);

/// Returns the cores that this process may use, in ascending order.
std::vector<int> cores_of_this_process();

/// The time that cores have spent since the machine was started, in the kernel's ticks.
struct CoreTimes {
  std::uint64_t busy = 0;   // for any process
  std::uint64_t total = 0;  // busy or idle
};

/// Returns the sums over `cores` in the text of /proc/stat. A line that cannot be parsed counts as absent.
CoreTimes core_times(std::string_view proc_stat, const std::vector<int>& cores);

/// Returns a warning if other processes use more than a tenth of the cores of this process. Sleeps for 200
/// ms, in which it measures. For benchmarks, whose times then are those of the other processes too.
std::optional<std::string> busy_machine_warning();

}  // namespace convoy
