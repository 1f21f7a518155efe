#include "tests/cuda_emulator/launch_log.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace convoy::emulator {

void LaunchLog::write() const {
  const char* const folder = std::getenv("CONVOY_EMULATOR_LOG");
  if (folder == nullptr || kernels_.empty()) return;
  std::error_code ignored;  // opening the file fails then, and that is reported
  std::filesystem::create_directories(folder, ignored);
  // Added to what is there: numbers of processes come again.
  const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".txt";
  std::ofstream log(path, std::ios::app);
  for (const auto& [kernel, most] : kernels_) {
    Dl_info place;
    link_map* module = nullptr;
    if (dladdr1(kernel, &place, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) continue;
    const std::filesystem::path program = *module->l_name != '\0' ? module->l_name : "/proc/self/exe";
    log << std::filesystem::canonical(program).string() << ' ' << std::hex
        << reinterpret_cast<std::uintptr_t>(kernel) - module->l_addr << std::dec << ' ' << most.threads << ' '
        << most.shared_bytes << '\n';
  }
  if (!log.flush()) std::fprintf(stderr, "CUDA emulator: cannot write %s\n", path.c_str());
}

}  // namespace convoy::emulator
