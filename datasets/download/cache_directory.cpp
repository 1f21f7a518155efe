#include <cstdlib>

#include "convoy/datasets/download/download.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

std::filesystem::path cache_directory() {
  // XDG Base Directory Specification: a relative path counts as not set.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return std::filesystem::path(cache) / "convoy";
  const char* home = std::getenv("HOME");
  check(home != nullptr && home[0] == '/',
        "cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path; set one of them, or name the "
        "directory of the data set");
  return std::filesystem::path(home) / ".cache" / "convoy";
}

}  // namespace convoy::data
