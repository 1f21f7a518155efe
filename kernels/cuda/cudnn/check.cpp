// Error messages and the version of cuDNN.
#include "convoy/kernels/cuda/cudnn/check.h"

#include <array>
#include <string_view>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels {

std::string cudnn_failure(cudnnStatus_t status) {
  std::array<char, 512> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  std::string text = fmt::format("{} ({})", cudnnGetErrorString(status), static_cast<int>(status));
  if (message[0] != '\0') text += fmt::format(": {}", message.data());
  return text;
}

void cudnn_check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::string_view name = file;  // CMake passes whole paths
  name.remove_prefix(name.rfind('/') + 1);
  fail<DeviceError>("{} failed: {}, {}:{}", call, cudnn_failure(status), name, line);
}

}  // namespace convoy::kernels

namespace convoy {

std::string cudnn_version_text() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace convoy
