#include "convoy/apps/common/about/version_text.h"

#include <thread>
#include <vector>

#include "convoy/comm/core/library_versions.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/facts.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/version.h"

namespace convoy {

std::string version_text(const std::string& program) {
  const CudaFacts cuda = cuda_facts();
  const unsigned cores = std::thread::hardware_concurrency();
  std::string devices = fmt::format("CPU with {} {}", cores, cores == 1 ? "core" : "cores");
  if (cuda.gpus.empty()) devices += "; no GPU: " + cuda.reason;
  for (const auto& gpu : cuda.gpus) devices += ", " + gpu.name;
  std::vector<std::string> libraries = {
      onednn_version_text(), openblas_version_text(), data::jpeg_decoder_text(),
      fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)};
  for (const std::string& text : {dist::mpi_version_text(), dist::nccl_version_text()})
    if (!text.empty()) libraries.push_back(text);
  libraries.insert(libraries.end(), cuda.libraries.begin(), cuda.libraries.end());
  return fmt::format("{} {}\nbuild      {}, {}, {}, CPU kernels: {}\ndevices    {}\nlibraries  {}", program,
                     kVersion, CONVOY_BUILD_TYPE, CONVOY_COMPILER,
                     cuda.is_built_in ? "CUDA " + cuda.needs : "CPU only", cpu_level(), devices,
                     fmt::join(libraries, ", "));
}

}  // namespace convoy
