#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {

std::filesystem::path source_path(const std::filesystem::path& relative) {
  const std::filesystem::path root = CONVOY_SOURCE_DIR;
  return relative.empty() ? root : root / relative;
}

}  // namespace convoy::testing
