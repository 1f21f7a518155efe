#include "convoy/apps/common/cpu_level/cpu_level.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy {
namespace {

constexpr const char* kVariable = "CONVOY_CPU_LEVEL";

/// A level, and how other libraries name the processors that have it.
struct Level {
  const char* name;
  /// Features that glibc ignores when it chooses libraries and its own functions.
  const char* without;
  const char* onednn;    // DNNL_MAX_CPU_ISA
  const char* openblas;  // OPENBLAS_CORETYPE
};
constexpr Level kLevels[] = {
    {"x86-64", "-SSE4_2,-AVX,-AVX2,-FMA,-AVX512F", "SSE41", "Prescott"},
    {"x86-64-v2", "-AVX,-AVX2,-FMA,-AVX512F", "SSE41", "Nehalem"},
    {"x86-64-v3", "-AVX512F,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512VL", "AVX2", "Haswell"},
    {"x86-64-v4", "", "AVX512_CORE", "SkylakeX"},
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns GLIBC_TUNABLES, a list of NAME=VALUE with colons, with the features that glibc ignores.
std::string tunables_without(const char* features) {
  constexpr std::string_view kName = "glibc.cpu.hwcaps=";
  std::string result;
  const std::string tunables = variable("GLIBC_TUNABLES");
  for (std::size_t at = 0; at < tunables.size();) {
    const std::size_t end = std::min(tunables.find(':', at), tunables.size());
    const std::string_view entry = std::string_view(tunables).substr(at, end - at);
    if (!entry.starts_with(kName)) result.append(result.empty() ? "" : ":").append(entry);
    at = end + 1;
  }
  if (*features != '\0') result.append(result.empty() ? "" : ":").append(kName).append(features);
  return result;
}

/// Returns the arguments of this process.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

/// Replaces this process by the same program with the same arguments and the present environment.
[[noreturn]] void start_again() {
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error && !arguments.empty()) ::execv(program.c_str(), pointers.data());
  fail<DeviceError>("{}: the program cannot be started again: {}", kVariable,
                    error ? error.message() : std::strerror(errno));
}

}  // namespace

std::vector<std::string> cpu_level_names() {
  std::vector<std::string> names;
  for (const Level& level : kLevels) names.emplace_back(level.name);
  return names;
}

void use_cpu_level(const std::string& level) {
  const auto* const found = std::find_if(std::begin(kLevels), std::end(kLevels),
                                         [&](const Level& candidate) { return candidate.name == level; });
  check(found != std::end(kLevels), "{}: found '{}', expected {}", kVariable, level,
        fmt::join(cpu_level_names(), ", "));
  const std::pair<const char*, std::string> wanted[] = {
      {"GLIBC_TUNABLES", tunables_without(found->without)},
      {"DNNL_MAX_CPU_ISA", found->onednn},
      {"OPENBLAS_CORETYPE", found->openblas},
      {kVariable, found->name},
  };
  const bool is_set = std::all_of(std::begin(wanted), std::end(wanted),
                                  [](const auto& entry) { return variable(entry.first) == entry.second; });
  if (!is_set) {
    for (const auto& [name, value] : wanted) ::setenv(name, value.c_str(), 1);
    start_again();
  }
  check(
      cpu_level() == level,
      "--cpu-level (or {}) {}: this build has CPU kernels for {} on this processor, expected that level, or a build by "
      "the preset package and a processor that has the level",
      kVariable, level, cpu_level());
}

void use_cpu_level_of_environment() {
  if (const std::string level = variable(kVariable); !level.empty()) use_cpu_level(level);
}

}  // namespace convoy
