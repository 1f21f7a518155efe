#include "emulator/runtime/launch_log.h"

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
  const char* const directory = std::getenv("CONVOY_EMULATOR_LOG");
  if (directory == nullptr || kernels_.empty()) return;
  std::error_code ignored;  // opening the file then fails and is reported
  std::filesystem::create_directories(directory, ignored);
  // Appends, because process ids are reused.
  const std::string path = std::string(directory) + "/" + std::to_string(getpid()) + ".txt";
  std::ofstream log(path, std::ios::app);
  for (const auto& [kernel, maximum] : kernels_) {
    Dl_info info;
    link_map* module = nullptr;
    if (dladdr1(kernel, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) continue;
    const std::filesystem::path program = *module->l_name != '\0' ? module->l_name : "/proc/self/exe";
    log << std::filesystem::canonical(program).string() << ' ' << std::hex
        << reinterpret_cast<std::uintptr_t>(kernel) - module->l_addr << std::dec << ' ' << maximum.threads
        << ' ' << maximum.shared_bytes << '\n';
  }
  if (!log.flush()) std::fprintf(stderr, "CUDA emulator: cannot write %s\n", path.c_str());
}

}  // namespace convoy::emulator
