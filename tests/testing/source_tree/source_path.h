// The path of a file of the source tree.
#pragma once

#include <filesystem>

namespace convoy::testing {

/// Returns the absolute path of a file or directory of the source tree, given relative to its root; by
/// default the root. Only source_path.cpp is compiled with that path, so that the compiler cache finds all
/// other sources again in another clone.
std::filesystem::path source_path(const std::filesystem::path& relative = {});

}  // namespace convoy::testing
