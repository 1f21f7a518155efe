#include "emulator/counting/source_lines.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <memory>
#include <string_view>

#include "emulator/counting/formatted.h"

namespace convoy::emulator {
namespace {

/// Returns the name of a demangled function without result type, namespaces, arguments and those of templates.
std::string short_name(std::string name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at = 0; (at = name.find(kAnonymous)) != std::string::npos;)
    name.erase(at, kAnonymous.size());
  name = name.substr(0, name.find_first_of("<("));
  return name.substr(name.find_last_of(": ") + 1);
}

/// Returns the part of a path that starts with a directory of the repository.
std::string short_path(const std::string& path) {
  for (const char* const top : {"/kernels/", "/tests/"})
    if (const std::size_t at = path.find(top); at != std::string::npos) return path.substr(at + 1);
  return path;
}

/// Returns the lines that a command prints, none if it fails.
std::vector<std::string> output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> lines;
  std::string line;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe.get())) != EOF;) {
    if (c != '\n') {
      line += static_cast<char>(c);
    } else {
      lines.push_back(std::move(line));
      line.clear();
    }
  }
  return lines;
}

}  // namespace

std::vector<std::vector<SourceLine>> source_lines(std::span<const void* const> addresses) {
  std::string command = "addr2line --addresses --functions --inlines --demangle --exe /proc/" +
                        std::to_string(getpid()) + "/exe";
  for (const void* const address : addresses) {
    Dl_info info;
    link_map* module = nullptr;
    if (dladdr1(address, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) return {};
    command += " " + hexadecimal(reinterpret_cast<std::uintptr_t>(address) - module->l_addr);
  }
  std::vector<std::vector<SourceLine>> result;
  // For each address: the address, then a line with a function and one with "file:line" per function.
  const std::vector<std::string> lines = output_of(command + " 2>/dev/null");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("0x")) {
      result.emplace_back();
    } else if (i + 1 < lines.size() && !result.empty()) {
      const std::string& place = lines[i + 1];
      const std::size_t colon = place.rfind(':');
      result.back().push_back({.function = short_name(lines[i]),
                               .file = short_path(place.substr(0, colon)),
                               .line = std::atoi(place.c_str() + colon + 1)});
      ++i;
    }
  }
  result.resize(addresses.size());
  return result;
}

}  // namespace convoy::emulator
