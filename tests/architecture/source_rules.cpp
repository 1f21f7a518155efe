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

// Which directory may include which: its own files, those of the directories named here, and all that these may
// include in turn. A new directory needs a row.
const std::map<std::string, std::vector<std::string>> kArrows = {
    {"kernels/base", {}},
    {"kernels/runtime/memory", {"kernels/base"}},
    {"kernels/runtime", {"kernels/runtime/memory"}},
    {"kernels/runtime/cuda", {"kernels/runtime"}},
    {"kernels", {"kernels/runtime"}},
    {"kernels/shared", {"kernels"}},
    {"kernels/cpu/primitives", {"kernels/shared"}},
    {"kernels/cpu/winograd", {"kernels/cpu/primitives"}},
    {"kernels/cpu/few_channels", {"kernels/cpu/primitives"}},
    {"kernels/cpu/normalization", {"kernels/cpu/primitives"}},
    {"kernels/cpu/onednn", {"kernels/cpu/primitives"}},
    {"kernels/cpu/optimizer", {"kernels/cpu/primitives"}},
    {"kernels/cpu",
     {"kernels/cpu/winograd", "kernels/cpu/few_channels", "kernels/cpu/normalization", "kernels/cpu/onednn"}},
    {"kernels/cuda/primitives", {"kernels/shared", "kernels/runtime/cuda"}},
    {"kernels/cuda/cublas", {"kernels/cuda/primitives"}},
    {"kernels/cuda/normalization", {"kernels/cuda/primitives"}},
    {"kernels/cuda/optimizer", {"kernels/cuda/primitives"}},
    {"kernels/cuda/cudnn", {"kernels/cuda/cublas"}},
    {"kernels/cuda", {"kernels/cuda/cublas", "kernels/cuda/cudnn", "kernels/cuda/normalization"}},
    {"engine/profile", {"kernels/runtime"}},
    {"engine/tensor", {"kernels"}},
    {"engine/autograd", {"engine/tensor"}},
    {"engine/ops", {"engine/autograd"}},
    {"engine/nn", {"engine/ops"}},
    {"engine/optim", {"engine/nn"}},
    {"engine/io", {"engine/optim"}},
    {"engine/training", {"engine/io"}},
    {"comm/core", {"kernels/runtime"}},
    {"comm/bootstrap", {"comm/core"}},
    {"comm/transport", {"comm/bootstrap"}},
    {"comm/transport/thread", {"comm/transport"}},
    {"comm/transport/shm", {"comm/transport"}},
    {"comm/transport/mpi", {"comm/transport"}},
    {"comm/cluster/tcp", {"comm/transport", "comm/cluster/net"}},
    {"comm/cluster/hierarchical", {"comm/transport/shm", "comm/transport/mpi", "comm/cluster/tcp"}},
    {"comm/cluster/control", {"comm/transport/shm", "comm/cluster/net"}},
    {"comm/cluster/net", {"comm/bootstrap"}},
    {"comm/cluster/store", {"comm/bootstrap", "comm/cluster/net"}},
    {"comm/nccl", {"comm/core", "kernels", "kernels/runtime/cuda"}},
    {"comm/parallel", {"comm/core", "engine/optim"}},
    {"comm/parallel/zero", {"comm/parallel"}},
    {"models", {"engine/nn"}},
    {"datasets", {"engine/io"}},
    {"datasets/cache", {"datasets", "engine/io"}},
    {"datasets/transforms", {"datasets", "kernels/shared"}},
    {"datasets/formats/image", {"kernels/base"}},
    {"datasets/formats",
     {"datasets/cache", "datasets/download", "datasets/transforms", "datasets/formats/image"}},
    {"datasets/shards", {"datasets/formats", "datasets/loader", "kernels/runtime"}},
    {"datasets/loader", {"datasets/transforms", "engine/io"}},
    {"datasets/download", {"datasets", "engine/io"}},
    {"apps/common",
     {"datasets/formats/image", "datasets/download", "comm/core", "engine/io", "kernels/runtime/cuda"}},
    {"apps/flags", {"apps/common", "comm/bootstrap"}},
    {"apps/data", {"apps/flags", "models", "datasets/formats", "datasets/loader", "comm/parallel"}},
    {"apps/ranks",
     {"apps/data", "comm/transport/thread", "comm/transport/shm", "comm/transport/mpi", "comm/nccl"}},
    {"apps/train/tuning", {"apps/data"}},
    {"apps/train/options", {"apps/ranks", "apps/train/tuning"}},
    {"apps/train", {"apps/train/options", "comm/parallel/zero", "engine/profile", "engine/training"}},
    {"apps/train/continuation", {"apps/train"}},
    {"apps/train/report", {"apps/train"}},
    {"apps/programs", {"apps/train/continuation", "apps/train/report", "apps/report", "datasets/shards"}},
    {"apps/cluster",
     {"apps/ranks", "apps/cluster/launcher", "comm/cluster/control", "comm/cluster/hierarchical",
      "comm/cluster/store"}},
    {"apps/cluster/doctor", {"apps/ranks", "comm/cluster/control", "comm/cluster/store"}},
    {"apps/cluster/launcher", {"apps/flags", "comm/cluster/net"}},
    {"apps/report/page", {}},
    {"apps/report", {"apps/flags"}},
    {"apps/examples",
     {"apps/programs", "bench/kernels", "models", "datasets/formats", "datasets/loader",
      "comm/cluster/hierarchical", "comm/cluster/store", "comm/nccl", "comm/parallel"}},
    {"bench/collectives", {"apps/train/report"}},
    {"tests/cuda_emulator/counted", {"kernels", "tests/cuda_emulator/vendor"}},
    {"bench/kernels", {"tests/cuda_emulator/counted", "apps/flags", "tests/testing/op_cases"}},
    {"bench/programs", {"apps/train/report"}},
    {"bench/step", {"bench/programs", "tests/cuda_emulator/counted"}},
    {"tests/testing/source_tree", {}},
    {"tests/testing/support",
     {"tests/testing/source_tree", "engine/io", "comm/cluster/hierarchical", "comm/cluster/store",
      "comm/transport/thread", "comm/nccl", "comm/parallel", "emulator/runtime"}},
    {"tests/testing/op_cases", {"engine/ops"}},
    {"tests/architecture", {"tests/testing/source_tree"}},
    {"emulator/include", {}},
    {"emulator/counting", {"emulator/include"}},
    {"emulator/checking", {"emulator/counting"}},
    {"emulator/program", {"emulator/include"}},
    {"emulator/runtime", {"emulator/checking", "emulator/program"}},
    {"tests/cuda_emulator/include", {"emulator/include"}},
    {"tests/cuda_emulator/vendor", {"emulator/runtime", "tests/cuda_emulator/include", "kernels/shared"}},
    {"tests/cuda_emulator/nccl", {"tests/cuda_emulator/vendor"}},
    {"tests/cuda_emulator/tests", {"tests/cuda_emulator/nccl", "kernels/cuda"}},
    {"tests/cuda_emulator/convolution",
     {"tests/cuda_emulator/tests", "tests/cuda_emulator/counted", "tests/kernels"}},
    {"tests/kernels", {"kernels", "tests/testing/support"}},
    {"tests/kernels/runtime", {"tests/kernels", "kernels/cuda"}},
    {"tests/kernels/cpu", {"tests/kernels", "kernels/cpu"}},
    {"tests/kernels/cpu/augment", {"tests/kernels", "kernels/cpu"}},
    {"tests/kernels/cuda/driver_stub", {}},
    {"tests/kernels/cuda/planned",
     {"tests/kernels/cuda/driver_stub", "tests/testing/source_tree", "kernels/cuda", "models"}},
    {"tests/kernels/cuda/normalization", {"tests/kernels", "kernels/cuda"}},
    {"tests/kernels/cuda",
     {"tests/kernels", "kernels/cuda", "tests/cuda_emulator/vendor", "tests/kernels/cuda/planned"}},
    {"tests/kernels/cuda/cudnn",
     {"tests/kernels", "kernels/cuda", "tests/cuda_emulator/vendor", "tests/kernels/cuda/planned"}},
    {"tests/engine/optim", {"tests/testing/support"}},
    {"tests/engine",
     {"engine/training", "engine/profile", "tests/testing/op_cases", "tests/testing/support"}},
    {"tests/models",
     {"models", "apps/examples", "kernels/cuda", "tests/testing/op_cases", "tests/testing/support"}},
    {"tests/onnx", {"models", "tests/testing/support"}},
    {"tests/comm", {"tests/testing/support"}},
    {"tests/comm/cluster", {"comm/cluster/control", "tests/comm/transport"}},
    {"tests/comm/bootstrap", {"tests/comm"}},
    {"tests/comm/transport", {"tests/comm"}},
    {"tests/comm/nccl", {"tests/comm/transport", "tests/cuda_emulator/nccl"}},
    {"tests/comm/parallel", {"tests/comm", "comm/parallel/zero", "models"}},
    {"tests/datasets", {"datasets/shards", "tests/testing/support"}},
    {"tests/apps", {"apps/data", "tests/testing/support"}},
    {"tests/apps/common", {"tests/apps", "tests/onnx", "apps/programs", "bench/collectives", "bench/step"}},
    {"tests/apps/train", {"tests/apps", "tests/apps/tutorials", "apps/programs"}},
    {"tests/apps/tutorials", {"tests/apps"}},
    {"tests/apps/ranks", {"tests/apps/tutorials", "tests/comm", "apps/train/report", "comm/cluster/control"}},
    {"tests/apps/cluster",
     {"tests/apps/tutorials", "tests/comm", "apps/cluster/doctor", "apps/cluster/launcher"}},
    {"tests/apps/faults", {"tests/apps", "apps/programs", "engine/io"}},
    {"tests/apps/report", {"tests/apps", "apps/report", "datasets/formats"}},
    {"tests/simulation", {"apps/ranks", "apps/flags", "apps/cluster/launcher"}},
    {"tests/fuzz", {"apps/flags", "comm/cluster/control", "tests/testing/support"}},
    {"tests/faults", {"engine/io", "tests/testing/support"}},
    {"tests/package/all_libraries", {}},
    {"tests/package/engine_only", {}},
    {"tests/bench", {"bench/collectives", "bench/kernels", "bench/step", "tests/apps"}},
};

// Outside kernels/base and kernels/runtime: sources that differ between versions of a library, or between processors.
const std::set<std::string> kVersionShims = {
    "kernels/cpu/onednn/versions.h",         "kernels/cpu/primitives/simd.h",
    "kernels/cuda/primitives/cluster.h",     "kernels/cuda/primitives/early_start.h",
    "tests/cuda_emulator/tests/hopper.h",    "tests/cuda_emulator/tests/tensor_core.h",
    "tests/cuda_emulator/tests/warpgroup.h", "emulator/runtime/fiber.cpp",
    "emulator/runtime/sanitizer.h"};

constexpr const char* kTopDirectories[] = {"emulator", "kernels", "engine", "comm", "models",
                                           "datasets", "apps",    "bench",  "tests"};

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Whether a file is a CUDA program that cuemu runs.
bool is_cuemu_program(const SourceFile& file) {
  constexpr std::string_view kDirectories[] = {"emulator/examples/", "emulator/tests/programs/",
                                               "tests/package/cuemu_only/"};
  return std::any_of(std::begin(kDirectories), std::end(kDirectories),
                     [&](std::string_view directory) { return file.path.starts_with(directory); });
}
bool is_build_list(const SourceFile& file) { return file.path.ends_with("CMakeLists.txt"); }
bool is_translation_unit(const std::string& path) { return path.ends_with(".cpp") || path.ends_with(".cu"); }

/// Whether `to` is reachable from `from` along the arrows.
bool may_see(const std::string& from, const std::string& to) {
  if (from == to) return true;
  const auto row = kArrows.find(from);
  return row != kArrows.end() && std::any_of(row->second.begin(), row->second.end(),
                                             [&](const std::string& next) { return may_see(next, to); });
}

/// Whether this file may include a file of directory `to`. A program's main.cpp also sees the subdirectories
/// of its own directory.
bool may_include(const SourceFile& file, const std::string& to) {
  const std::string from = directory_of(file.path);
  if (file.path.ends_with("/main.cpp") && to.starts_with(from + "/")) return true;
  return may_see(from, to);
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
  std::string
      target;  // the path of the file from the root of the tree; "" for a library's header without convoy/
  std::string spelled;
  bool is_quoted;
};

/// Returns the path from the root of the file that an #include names. Headers of libraries are included as
/// convoy/…, as in an installed tree; without that prefix, the result is "".
std::string included_path(const std::string& spelled) {
  constexpr std::string_view kPrefix = "convoy/";
  constexpr std::string_view kLibraries[] = {
      "kernels/", "engine/", "comm/", "models/", "datasets/", "apps/", "bench/kernels/user_op.h"};
  const bool is_prefixed = spelled.starts_with(kPrefix);
  std::string path = is_prefixed ? spelled.substr(kPrefix.size()) : spelled;
  const bool is_library = std::any_of(std::begin(kLibraries), std::end(kLibraries),
                                      [&](std::string_view library) { return path.starts_with(library); });
  return is_library == is_prefixed ? path : "";
}

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> found;
  std::istringstream lines(file.text);
  std::string line;
  std::smatch match;
  for (int number = 1; std::getline(lines, line); ++number)
    if (std::regex_search(line, match, kInclude))
      found.push_back({.line = number,
                       .target = included_path(match[2]),
                       .spelled = match[2],
                       .is_quoted = match[1] == "\""});
  return found;
}

std::map<std::string, const SourceFile*> by_path(const std::vector<SourceFile>& files) {
  std::map<std::string, const SourceFile*> index;
  for (const SourceFile& file : files) index[file.path] = &file;
  return index;
}

/// The chain of headers by which a file reaches fmt, "a.cu -> b.h -> fmt/format.h", or "".
std::string include_chain_to_fmt(const SourceFile& file,
                                 const std::map<std::string, const SourceFile*>& index,
                                 std::set<std::string>& visited) {
  if (!visited.insert(file.path).second) return "";
  for (const Include& include : includes_of(file)) {
    if (include.target.starts_with("fmt/")) return file.path + " -> " + include.target;
    const auto header = index.find(include.target);
    if (header == index.end()) continue;
    const std::string rest = include_chain_to_fmt(*header->second, index, visited);
    if (!rest.empty()) return file.path + " -> " + rest;
  }
  return "";
}

}  // namespace

std::vector<SourceFile> read_tree(const std::filesystem::path& root) {
  static const std::set<std::string> kExtensions = {".h", ".cpp", ".cu"};
  std::vector<SourceFile> files;
  for (const char* directory : kTopDirectories) {
    if (!std::filesystem::exists(root / directory)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / directory)) {
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
    if (is_build_list(file) || is_cuemu_program(file)) continue;
    const std::string from = directory_of(file.path);
    if (!kArrows.contains(from))
      problems.push_back(fmt::format("{}: {} has no row in the table of arrows", file.path, from));
    for (const Include& include : includes_of(file)) {
      if (!include.is_quoted || include.spelled == "convoy/version.h") continue;  // made by CMake
      if (!index.contains(include.target)) {
        problems.push_back(
            fmt::format("{}:{}: includes {}, expected convoy/ and the path of a library's header, "
                        "or the path of another file from the root",
                        file.path, include.line, include.spelled));
      } else if (!may_include(file, directory_of(include.target))) {
        problems.push_back(fmt::format("{}:{}: includes {}, which {} may not see", file.path, include.line,
                                       include.target, from));
      }
    }
  }
  return problems;
}

Problems check_core(const std::vector<SourceFile>& files) {
  constexpr std::string_view kCore[] = {"kernels", "engine", "models", "datasets", "comm", "apps", "bench"};
  const auto is_cluster = [](const std::string& directory) {
    return directory.starts_with("comm/cluster") || directory.starts_with("apps/cluster");
  };
  Problems problems;
  for (const auto& [from, unused] : kArrows) {
    const bool is_core = std::any_of(std::begin(kCore), std::end(kCore), [&](std::string_view top) {
      return from.starts_with(top) && !is_cluster(from) && from != "apps/examples";
    });
    for (const auto& [to, unused_too] : kArrows)
      if (is_core && is_cluster(to) && may_see(from, to))
        problems.push_back(fmt::format("{} may see {}, which belongs to the component cluster", from, to));
  }
  for (const SourceFile& file : files)
    if (file.path == "comm/CMakeLists.txt")
      for_each_line(file, [&](int number, const std::string& line) {
        if (line.substr(0, line.find('#')).find("cluster") != std::string::npos)
          problems.push_back(
              fmt::format("{}:{}: convoy_comm must not know the component cluster", file.path, number));
      });
  return problems;
}

Problems check_conditionals(const std::vector<SourceFile>& files) {
  static const std::regex kConditional(R"(^\s*#\s*(if|ifdef|ifndef|elif)\b)");
  Problems problems;
  for (const SourceFile& file : files) {
    if (is_build_list(file) || file.path.starts_with("kernels/runtime/") ||
        file.path.starts_with("kernels/base/") || kVersionShims.contains(file.path))
      continue;
    for_each_line(file, [&](int number, const std::string& line) {
      if (std::regex_search(line, kConditional))
        problems.push_back(
            fmt::format("{}:{}: conditional compilation belongs in kernels/runtime", file.path, number));
    });
  }
  return problems;
}

Problems check_json_texts(const std::vector<SourceFile>& files) {
  static const std::regex kProduct("(kernels|engine|comm|datasets|models|apps|bench)/.*");
  // The function itself, and the writer of a format whose names must be UTF-8, which refuses others.
  static const std::set<std::string> kExceptions = {"kernels/base/json_text.h", "engine/io/safetensors.cpp"};
  Problems problems;
  for (const SourceFile& file : files) {
    if (!std::regex_match(file.path, kProduct) || kExceptions.contains(file.path)) continue;
    for_each_line(file, [&](int number, const std::string& line) {
      if (line.find(".dump(") != std::string::npos)
        problems.push_back(fmt::format(
            "{}:{}: dump() throws for names that are not UTF-8; expected json_text()", file.path, number));
    });
  }
  return problems;
}

Problems check_public_headers(const std::vector<SourceFile>& files) {
  static const std::regex kLibrary("(engine|models|datasets)/.*[.]h");
  static const std::set<std::string> kInternal = {
      "datasets/files.h",
      "datasets/formats/class_directories.h",
      "datasets/formats/image/pixels.h",
      "datasets/formats/parsers.h",
      "datasets/loader/batch_maker.h",
      "datasets/loader/block_order.h",
      "datasets/shards/format.h",
      "datasets/transforms/original_view.h",
      "datasets/transforms/resize.h",
      "engine/autograd/op_observer.h",
      "engine/autograd/variable_state.h",
      "engine/io/onnx_graph.h",
      "engine/ops/detail.h",
      "models/whitening.h",
  };
  const auto index = by_path(files);
  std::set<std::string> reached;
  for (std::vector<std::string> unread = {"cmake/package/convoy.h"}; !unread.empty();) {
    const std::string path = unread.back();
    unread.pop_back();
    if (!index.contains(path) || !reached.insert(path).second) continue;
    for (const Include& include : includes_of(*index.at(path))) unread.push_back(include.target);
  }
  Problems problems;
  for (const SourceFile& file : files)
    if (std::regex_match(file.path, kLibrary) && !reached.contains(file.path) &&
        !kInternal.contains(file.path))
      problems.push_back(file.path + ": public, but not in convoy/convoy.h");
  return problems;
}

Problems check_flags_in_messages(const std::vector<SourceFile>& files) {
  static const std::regex kLibrary("(kernels|engine|comm|datasets|models)/.*");
  static const std::regex kFlag(R"("[^"]*--[a-z][^"]*")");  // in a string literal of one line
  Problems problems;
  for (const SourceFile& file : files) {
    if (is_build_list(file) || !std::regex_match(file.path, kLibrary)) continue;
    for_each_line(file, [&](int number, const std::string& line) {
      if (std::smatch found; std::regex_search(line, found, kFlag))
        problems.push_back(fmt::format(
            "{}:{}: the library names a flag of a program in {}; name its own option (apps/flags/flag_names.h)",
            file.path, number, found.str()));
    });
  }
  return problems;
}

Problems check_device_sources(const std::vector<SourceFile>& files) {
  Problems problems;
  const auto index = by_path(files);
  // Split in two, so that the rule does not find this file.
  const std::string kernel_word = std::string("__") + "global__";
  const std::string shared_word = std::string("__") + "shared__";
  const std::string launch_sign = std::string("<") + "<<";
  for (const SourceFile& file : files) {
    const bool is_emulator =
        file.path.starts_with("emulator/") || file.path.starts_with("tests/cuda_emulator/");
    // Kernels in strings, which a test compiles at run time, and a kernel with mistakes that the emulator must report.
    const bool is_source_text = file.path == "tests/kernels/cuda/planned/cubin_test.cpp" ||
                                file.path == "tests/kernels/cuda/normalization/cuda_clusters_test.cpp";
    for_each_line(file, [&](int number, const std::string& line) {
      const std::string code = line.substr(0, line.find("//"));
      const auto report = [&](const std::string& word, bool is_allowed, const char* what) {
        if (!is_allowed && code.find(word) != std::string::npos)
          problems.push_back(fmt::format("{}:{}: {}", file.path, number, what));
      };
      report(
          kernel_word,
          is_emulator || is_cuemu_program(file) || is_source_text || file.path.starts_with("kernels/cuda/"),
          "a kernel outside kernels/cuda");
      report(shared_word,
             is_emulator || is_cuemu_program(file) || file.path == "kernels/cuda/primitives/launch.h",
             "shared memory comes from shared_memory() of kernels/cuda/primitives/launch.h");
      report(launch_sign, is_cuemu_program(file),
             "kernels are launched by launch() of kernels/cuda/primitives/launch.h");
    });
    if (!file.path.ends_with(".cu")) continue;
    std::set<std::string> visited;
    if (const std::string chain = include_chain_to_fmt(file, index, visited); !chain.empty())
      problems.push_back(fmt::format("{}: fmt does not compile in device sources: {}", file.path, chain));
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
      const std::filesystem::path word = std::filesystem::path(directory_of(list.path)) / match->str();
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
