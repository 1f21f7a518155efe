#include "convoy/kernels/runtime/memory/host_memory_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace convoy {
namespace {

namespace fs = std::filesystem;

/// Returns the limit in the file; `otherwise` if the file has none.
std::size_t limit_in(const fs::path& file, std::size_t otherwise) {
  std::size_t bytes = 0;
  return std::ifstream(file) >> bytes ? std::min(bytes, otherwise) : otherwise;  // "max" is not a number
}

/// Returns the lowest limit of a group and the groups around it. In a container without a namespace for control groups,
/// the path of the group does not exist, and its limit is at the mount point.
std::size_t lowest_limit(const fs::path& mount, const fs::path& group, const char* file, std::size_t bytes) {
  fs::path directory = mount;
  bytes = limit_in(directory / file, bytes);
  for (const fs::path& part : group.relative_path()) {
    if (part == "..") return bytes;  // outside the namespace
    directory /= part;
    bytes = limit_in(directory / file, bytes);
  }
  return bytes;
}

}  // namespace

std::size_t host_memory_limit(const fs::path& root) {
  std::size_t bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "9:cpu,memory:/path"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      bytes = lowest_limit(mount, group, "memory.max", bytes);
      bytes = lowest_limit(mount / "unified", group, "memory.max", bytes);
    } else if (controllers.find(",memory,") != std::string::npos) {
      bytes = lowest_limit(mount / "memory", group, "memory.limit_in_bytes", bytes);
    }
  }
  return bytes;
}

}  // namespace convoy
