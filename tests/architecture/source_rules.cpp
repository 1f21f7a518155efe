#include "tests/architecture/source_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace convoy::architecture {
namespace {

// Who may see whom: a folder's files include those of their own folder, of the folders named here, and of all
// that these may see in turn. A new folder needs a row.
const std::map<std::string, std::vector<std::string>> kArrows = {
    {"kernels/runtime", {}},
    {"kernels", {"kernels/runtime"}},
    {"kernels/cpu", {"kernels"}},
    {"kernels/cuda", {"kernels"}},
    {"engine/profile", {"kernels/runtime"}},
    {"engine/tensor", {"kernels"}},
    {"engine/autograd", {"engine/tensor"}},
    {"engine/ops", {"engine/autograd"}},
    {"engine/nn", {"engine/ops"}},
    {"engine/optim", {"engine/nn"}},
    {"engine/io", {"engine/optim"}},
    {"comm", {"engine/optim"}},
    {"models", {"engine/nn"}},
    {"datasets", {"engine/io"}},
    {"apps", {"models", "datasets", "comm", "engine/profile"}},
    {"bench", {"apps", "tests/op_cases"}},
    {"tests/support", {"engine/io", "comm", "tests/cuda_emulator"}},
    {"tests/op_cases", {"engine/ops", "tests/support"}},
    {"tests/architecture", {}},
    {"tests/cuda_emulator", {"kernels/cuda", "tests/cuda_emulator/include"}},
    {"tests/cuda_emulator/include", {}},
    {"tests/kernels", {"kernels/cpu", "kernels/cuda", "tests/support"}},
    {"tests/engine", {"engine/io", "engine/profile", "tests/op_cases"}},
    {"tests/models", {"models", "tests/support"}},
    {"tests/comm", {"comm", "models", "tests/support"}},
    {"tests/datasets", {"datasets", "tests/support"}},
    {"tests/apps", {"apps", "tests/support"}},
    {"tests/faults", {"apps", "tests/support"}},
    {"tests/bench", {"bench", "tests/support"}},
};

// Beside kernels/runtime: sources that must differ between versions of a library, or between processors.
const std::set<std::string> kVersionShims = {"kernels/cpu/onednn.h", "datasets/http_transfer.cpp",
                                             "tests/cuda_emulator/fiber.cpp",
                                             "tests/cuda_emulator/sanitizer.h"};

constexpr std::ptrdiff_t kMaxLines = 450;
// What a reader judges the project by is shorter.
const std::map<std::string, std::ptrdiff_t> kShorter = {
    {"apps/minimal_cifar10.cpp", 149},     {"engine/autograd/backward.h", 299},
    {"engine/autograd/backward.cpp", 299}, {"kernels/elementwise.h", 299},
    {"kernels/cpu/elementwise.cpp", 299},  {"kernels/cuda/elementwise.cu", 299},
};

constexpr const char* kFolders[] = {"kernels",  "engine", "comm",  "models",
                                    "datasets", "apps",   "bench", "tests"};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool is_build_list(const SourceFile& file) { return file.path.ends_with("CMakeLists.txt"); }
bool is_translation_unit(const std::string& path) { return path.ends_with(".cpp") || path.ends_with(".cu"); }

bool may_see(const std::string& from, const std::string& to) {
  if (from == to) return true;
  const auto row = kArrows.find(from);
  return row != kArrows.end() && std::any_of(row->second.begin(), row->second.end(),
                                             [&](const std::string& next) { return may_see(next, to); });
}

/// Calls f(line number, text) for each line, without its // comment.
template <class F>
void for_each_line(const SourceFile& file, F&& f) {
  std::istringstream lines(file.text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) f(number, line.substr(0, line.find("//")));
}

struct Include {
  int line;
  std::string target;
  bool is_quoted;
};

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> found;
  std::istringstream lines(file.text);
  std::string line;
  std::smatch match;
  for (int number = 1; std::getline(lines, line); ++number)
    if (std::regex_search(line, match, kInclude))
      found.push_back({.line = number, .target = match[2], .is_quoted = match[1] == "\""});
  return found;
}

std::map<std::string, const SourceFile*> by_path(const std::vector<SourceFile>& files) {
  std::map<std::string, const SourceFile*> index;
  for (const SourceFile& file : files) index[file.path] = &file;
  return index;
}

/// The chain of headers by which a file reaches fmt, "a.cu -> b.h -> fmt/format.h", or "".
std::string way_to_fmt(const SourceFile& file, const std::map<std::string, const SourceFile*>& index,
                       std::set<std::string>& visited) {
  if (!visited.insert(file.path).second) return "";
  for (const Include& include : includes_of(file)) {
    if (include.target.starts_with("fmt/") || include.target.starts_with("spdlog/"))
      return file.path + " -> " + include.target;
    const auto header = index.find(include.target);
    if (header == index.end()) continue;
    const std::string rest = way_to_fmt(*header->second, index, visited);
    if (!rest.empty()) return file.path + " -> " + rest;
  }
  return "";
}

}  // namespace

std::vector<SourceFile> read_tree(const std::filesystem::path& root) {
  static const std::set<std::string> kExtensions = {".h", ".cpp", ".cu"};
  std::vector<SourceFile> files;
  for (const char* folder : kFolders) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::filesystem::path& path = entry.path();
      if (!kExtensions.contains(path.extension()) && path.filename() != "CMakeLists.txt") continue;
      std::ifstream stream(path, std::ios::binary);
      files.push_back({.path = path.lexically_relative(root).generic_string(),
                       .text = std::string(std::istreambuf_iterator<char>(stream), {})});
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

Problems check_arrows(const std::vector<SourceFile>& files) {
  Problems problems;
  const auto index = by_path(files);
  for (const SourceFile& file : files) {
    if (is_build_list(file)) continue;
    const std::string from = folder_of(file.path);
    if (!kArrows.contains(from))
      problems.push_back(fmt::format("{}: {} has no row in the table of arrows", file.path, from));
    for (const Include& include : includes_of(file)) {
      if (!include.is_quoted) continue;
      if (!index.contains(include.target)) {
        problems.push_back(fmt::format("{}:{}: includes {}, which is no path from the root to a file of ours",
                                       file.path, include.line, include.target));
      } else if (!may_see(from, folder_of(include.target))) {
        problems.push_back(fmt::format("{}:{}: includes {}, which {} may not see", file.path, include.line,
                                       include.target, from));
      }
    }
  }
  return problems;
}

Problems check_conditionals(const std::vector<SourceFile>& files) {
  static const std::regex kConditional(R"(^\s*#\s*(if|ifdef|ifndef|elif)\b)");
  Problems problems;
  for (const SourceFile& file : files) {
    if (is_build_list(file) || folder_of(file.path) == "kernels/runtime" || kVersionShims.contains(file.path))
      continue;
    for_each_line(file, [&](int number, const std::string& line) {
      if (std::regex_search(line, kConditional))
        problems.push_back(
            fmt::format("{}:{}: conditional compilation belongs in kernels/runtime", file.path, number));
    });
  }
  return problems;
}

Problems check_device_sources(const std::vector<SourceFile>& files) {
  Problems problems;
  const auto index = by_path(files);
  // In two, lest this file be found.
  const std::string kernel_word = std::string("__") + "global__";
  const std::string shared_word = std::string("__") + "shared__";
  const std::string launch_sign = std::string("<") + "<<";
  for (const SourceFile& file : files) {
    const bool is_emulator = file.path.starts_with("tests/cuda_emulator/");
    for_each_line(file, [&](int number, const std::string& line) {
      const std::string code = line.substr(0, line.find("//"));
      const auto report = [&](const std::string& word, bool is_allowed, const char* what) {
        if (!is_allowed && code.find(word) != std::string::npos)
          problems.push_back(fmt::format("{}:{}: {}", file.path, number, what));
      };
      report(kernel_word, is_emulator || folder_of(file.path) == "kernels/cuda",
             "a kernel outside kernels/cuda");
      report(shared_word, is_emulator || file.path == "kernels/cuda/launch.h",
             "shared memory comes from shared_memory() of kernels/cuda/launch.h");
      report(launch_sign, false, "kernels are launched by launch() of kernels/cuda/launch.h");
    });
    if (!file.path.ends_with(".cu")) continue;
    std::set<std::string> visited;
    if (const std::string way = way_to_fmt(file, index, visited); !way.empty())
      problems.push_back(fmt::format("{}: fmt does not compile in device sources: {}", file.path, way));
  }
  return problems;
}

Problems check_lengths(const std::vector<SourceFile>& files) {
  Problems problems;
  for (const SourceFile& file : files) {
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    const auto own = kShorter.find(file.path);
    const std::ptrdiff_t limit = own != kShorter.end() ? own->second : kMaxLines;
    if (lines > limit) problems.push_back(fmt::format("{}: {} lines, at most {}", file.path, lines, limit));
  }
  return problems;
}

Problems check_build_lists(const std::vector<SourceFile>& files) {
  static const std::regex kWord(R"([\w./-]*\w)");
  Problems problems;
  const auto index = by_path(files);
  std::set<std::string> listed;
  for (const SourceFile& list : files) {
    if (!is_build_list(list)) continue;
    const std::string code = std::regex_replace(list.text, std::regex("#[^\n]*"), "");
    if (std::regex_search(code, std::regex(R"(file\s*\(\s*GLOB)")))
      problems.push_back(list.path + ": globs its sources");
    for (std::sregex_iterator match(code.begin(), code.end(), kWord), end; match != end; ++match) {
      const std::filesystem::path word = std::filesystem::path(folder_of(list.path)) / match->str();
      const std::string path = word.lexically_normal().generic_string();
      listed.insert(path);
      if (is_translation_unit(match->str()) && !word.filename().string().starts_with('.') &&
          !index.contains(path))
        problems.push_back(fmt::format("{}: lists {}, which does not exist", list.path, path));
    }
  }
  for (const SourceFile& file : files) {
    if (!is_translation_unit(file.path)) continue;
    // A function or loop may add the extension: convoy_program_test(resume_test).
    const std::string stem = file.path.substr(0, file.path.rfind('.'));
    if (!listed.contains(file.path) && !listed.contains(stem))
      problems.push_back(fmt::format("{}: no CMakeLists.txt lists it", file.path));
  }
  return problems;
}

}  // namespace convoy::architecture
