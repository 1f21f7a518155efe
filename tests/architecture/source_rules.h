// What every source file of the project keeps to, as functions from the files to what is wrong with them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convoy::architecture {

struct SourceFile {
  std::string path;  // from the repository's root, with '/'
  std::string text;
};

/// All sources, headers and CMakeLists.txt in the project's own directories.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

/// One line a problem: "engine/tensor/tensor.h:7: includes engine/nn/module.h, which engine/tensor may not
/// see".
using Problems = std::vector<std::string>;

/// Every #include "…" names a file that exists, by its path from the root, along an arrow of the table.
Problems check_arrows(const std::vector<SourceFile>& files);
/// Nothing but apps/examples and the component cluster itself reaches comm/cluster or apps/cluster along the
/// arrows, and the build list of convoy_comm does not name them.
Problems check_core(const std::vector<SourceFile>& files);
/// Conditional compilation only in kernels/runtime and the named shims for versions of libraries.
Problems check_conditionals(const std::vector<SourceFile>& files);
/// No message of the library, in kernels, engine, comm, datasets and models, names a flag of a program.
Problems check_flags_in_messages(const std::vector<SourceFile>& files);
/// JSON is written by json_text() alone, which accepts strings that are not UTF-8.
Problems check_json_texts(const std::vector<SourceFile>& files);
/// cmake/package/convoy.h, one of `files`, includes every header of engine, models and datasets, also through others, but
/// those that the rule lists as internal.
Problems check_public_headers(const std::vector<SourceFile>& files);
/// Device code only in kernels/cuda, which launches and shares memory as an emulator can follow; no fmt in
/// what nvcc compiles, at any depth of inclusion.
Problems check_device_sources(const std::vector<SourceFile>& files);
/// The nearest CMakeLists.txt lists every source, each listed one exists, and none is globbed.
Problems check_build_lists(const std::vector<SourceFile>& files);

}  // namespace convoy::architecture
