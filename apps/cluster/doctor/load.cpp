#include "convoy/apps/cluster/doctor/load.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "convoy/apps/cluster/doctor/host.h"
#include "convoy/kernels/base/check.h"

namespace convoy::doctor {
namespace {

std::string read_proc_stat() {
  std::ifstream file("/proc/stat");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

CoreTimes core_times(std::string_view proc_stat, const std::vector<int>& cores) {
  // cpu0 user nice system idle iowait irq softirq steal …; the guests' times are part of user and nice.
  constexpr int kIdle = 3, kWaiting = 4, kFields = 8;
  CoreTimes sum;
  std::istringstream lines{std::string(proc_stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    const bool is_wanted = std::any_of(cores.begin(), cores.end(),
                                       [&](int core) { return name == "cpu" + std::to_string(core); });
    if (!is_wanted) continue;
    std::uint64_t ticks = 0;
    for (int field = 0; field < kFields && fields >> ticks; ++field) {
      sum.total += ticks;
      if (field != kIdle && field != kWaiting) sum.busy += ticks;
    }
  }
  return sum;
}

std::optional<std::string> busy_machine_warning() {
  constexpr double kTolerated = 0.1;
  const std::vector<int> cores = cores_of_this_process();
  const CoreTimes before = core_times(read_proc_stat(), cores);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const CoreTimes after = core_times(read_proc_stat(), cores);
  if (after.total <= before.total || after.busy < before.busy) return std::nullopt;
  const double share =
      static_cast<double>(after.busy - before.busy) / static_cast<double>(after.total - before.total);
  if (share <= kTolerated) return std::nullopt;
  return fmt::format(
      "other processes use {:.0f}% of the {} of this process: the times below are longer than on an idle "
      "machine, and vary",
      share * 100, cores.size() == 1 ? "core" : fmt::format("{} cores", cores.size()));
}

}  // namespace convoy::doctor
