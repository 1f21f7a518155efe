#include "bench/step/temp_dir.h"

#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>

#include <string>
#include <system_error>

#include "convoy/kernels/base/check.h"

namespace convoy::bench {

TempDirectory::TempDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "convoy-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    fail<OutputError>("{}: cannot create a temporary directory", pattern);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;  // a destructor must not throw; a remaining directory is harmless
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace convoy::bench
