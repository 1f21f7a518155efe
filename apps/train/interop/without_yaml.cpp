// The error of a build without yaml-cpp.
#include "convoy/apps/train/interop/setting.h"
#include "convoy/kernels/base/check.h"

namespace convoy::interop {

std::vector<Setting> read_yaml(const std::filesystem::path& file) {
  fail<UsageError>(
      "{}: this build reads no YAML; install libyaml-cpp-dev and build again, or give the flags instead",
      file.string());
}

}  // namespace convoy::interop
