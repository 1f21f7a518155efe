// What other processes use of the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::doctor {

/// The time that cores have spent since the machine was started, in the kernel's ticks.
struct CoreTimes {
  std::uint64_t busy = 0;   // for any process
  std::uint64_t total = 0;  // busy or idle
};

/// Returns the sums over `cores` in the text of /proc/stat. A line that cannot be parsed counts as absent.
CoreTimes core_times(std::string_view proc_stat, const std::vector<int>& cores);

/// Returns a warning if other processes use more than a tenth of the cores of this process. Sleeps for 200 ms, in
/// which it measures. For benchmarks, whose times then are those of the other processes too.
std::optional<std::string> busy_machine_warning();

}  // namespace convoy::doctor
