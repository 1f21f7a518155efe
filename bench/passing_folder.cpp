#include "bench/passing_folder.h"

#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>

#include <string>
#include <system_error>

#include "kernels/runtime/check.h"

namespace convoy::bench {

PassingFolder::PassingFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "convoy-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) fail<OutputError>("{}: no folder can be made there", pattern);
  path_ = pattern;
}

PassingFolder::~PassingFolder() {
  std::error_code ignored;  // a destructor must not throw, and a left-over folder harms no later run
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace convoy::bench
