#include "convoy/apps/common/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "convoy/comm/core/library_versions.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/facts.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/version.h"

namespace convoy {
namespace {

std::string read_proc_stat() {
  std::ostringstream text;
  text << std::ifstream("/proc/stat").rdbuf();
  return text.str();
}

/// Returns the value of the first line "KEY: VALUE" whose key begins with `key`, without leading blanks.
std::string value_in(const std::filesystem::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Returns an entry of /proc/meminfo in bytes.
std::uint64_t memory_of(const std::string& key) {
  std::uint64_t kilobytes = 0;
  std::istringstream(value_in("/proc/meminfo", key)) >> kilobytes;
  return kilobytes * 1024;
}

std::vector<std::string> library_texts() {
  std::vector<std::string> texts = {onednn_version_text(), openblas_version_text(),
                                    data::jpeg_decoder_text()};
  for (const std::string& text : {dist::mpi_version_text(), dist::nccl_version_text()})
    if (!text.empty()) texts.push_back(text);
  return texts;
}

}  // namespace

Machine this_machine() {
  utsname names{};
  uname(&names);
  return {.processor = value_in("/proc/cpuinfo", "model name"),
          .system = fmt::format("{} {}, {}", names.sysname, names.release, names.machine),
          .online_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
          .cores = cores_of_this_process(),
          .memory_bytes = memory_of("MemTotal"),
          .memory_available = memory_of("MemAvailable"),
          .libraries = library_texts()};
}

std::vector<int> cores_of_this_process() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  return cores;
}

CoreTimes core_times(std::string_view proc_stat, const std::vector<int>& cores) {
  // cpu0 user nice system idle iowait irq softirq steal …; the guests' times are part of user and nice.
  constexpr int kIdle = 3, kWaiting = 4, kFields = 8;
  CoreTimes sum;
  std::istringstream lines{std::string(proc_stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    const bool is_wanted =
        std::ranges::any_of(cores, [&](int core) { return name == "cpu" + std::to_string(core); });
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

std::string version_text(const std::string& program) {
  const CudaFacts cuda = cuda_facts();
  const unsigned cores = std::thread::hardware_concurrency();
  std::string devices = fmt::format("CPU with {} {}", cores, cores == 1 ? "core" : "cores");
  if (cuda.gpus.empty()) devices += "; no GPU: " + cuda.reason;
  for (const auto& gpu : cuda.gpus) devices += ", " + gpu.name;
  std::vector<std::string> libraries = library_texts();
  libraries.insert(libraries.begin() + 3, fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000,
                                                      FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  libraries.insert(libraries.end(), cuda.libraries.begin(), cuda.libraries.end());
  return fmt::format("{} {}\nbuild      {}, {}, {}, CPU kernels: {}\ndevices    {}\nlibraries  {}", program,
                     kVersion, CONVOY_BUILD_TYPE, CONVOY_COMPILER,
                     cuda.is_built_in ? fmt::format("CUDA {} for {}", cuda.needs, cuda.code) : "CPU only",
                     cpu_level(), devices, fmt::join(libraries, ", "));
}

}  // namespace convoy
