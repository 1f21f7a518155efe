#include "emulator/checking/findings.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "emulator/counting/source_lines.h"

namespace convoy::emulator {
namespace {

/// Returns whether a line belongs to the program, and neither to the emulator nor to the system's headers.
bool is_of_program(const SourceLine& line) {
  static const std::string root = [] {  // "/emulator/"
    const std::string path = __FILE__, parent = path.substr(0, path.rfind("/checking/"));
    return "/" + parent.substr(parent.rfind('/') + 1) + "/";
  }();
  if (line.line == 0 || line.file.starts_with("/usr/")) return false;
  const std::string path = "/" + std::filesystem::path(line.file).lexically_normal().string();
  constexpr const char* kOwn[] = {"include/", "program/", "runtime/", "checking/", "counting/"};
  return std::none_of(std::begin(kOwn), std::end(kOwn), [&](const char* directory) {
    return path.find(root + directory) != std::string::npos;
  });
}

std::string line_text(const SourceLine& line) {
  return line.file.substr(line.file.rfind('/') + 1) + ":" + std::to_string(line.line);
}

/// Returns the first line of the program among those of the addresses.
std::string first_place(Callers sites) {
  std::erase_if(sites, [](const void* site) {  // those in libraries
    Dl_info info;
    link_map* module = nullptr;
    return dladdr1(site, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0 ||
           *module->l_name != '\0';
  });
  if (sites.empty()) return "";
  for (const std::vector<SourceLine>& lines : source_lines(sites)) {
    const auto found = std::find_if(lines.begin(), lines.end(), is_of_program);
    if (found != lines.end()) return line_text(*found);
  }
  return "";
}

}  // namespace

Findings& Findings::get() {
  static Findings& findings = *new Findings;
  return findings;
}

void Findings::add(Finding finding) {
  if (!known_.insert(finding.code + " " + finding.place).second) return;
  all_.push_back(std::move(finding));
  const Finding& added = all_.back();
  if (report_line("{\"finding\": {\"code\": " + json_string(added.code) + ", \"place\": " +
                  json_string(added.place) + ", \"message\": " + json_string(added.message) + "}}"))
    return;
  std::fprintf(stderr, "%s\n", to_string(added).c_str());
}

void Findings::clear() {
  all_.clear();
  known_.clear();
}

std::string to_string(const Finding& finding) {
  return (finding.place.empty() ? "" : finding.place + ": ") + finding.code + ": " + finding.message;
}

bool report_line(const std::string& line) {
  const char* const path = std::getenv("CUEMU_REPORT");
  if (path == nullptr) return false;
  std::ofstream file(path, std::ios::app);
  if (!(file << line << std::endl)) std::fprintf(stderr, "cuemu: cannot write %s\n", path);
  return true;
}

std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result + '"';
}

std::string place_of(const void* site) {
  static std::map<const void*, std::string>& known = *new std::map<const void*, std::string>;
  const auto [found, is_new] = known.try_emplace(site);
  if (is_new) found->second = first_place({site});
  return found->second;
}

Callers callers() {
  std::array<void*, 32> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  Callers result;
  for (int i = 0; i < count; ++i)
    result.push_back(static_cast<const char*>(frames[static_cast<std::size_t>(i)]) - 1);
  return result;
}

std::string place_of(const Callers& callers) { return first_place(callers); }

}  // namespace convoy::emulator
