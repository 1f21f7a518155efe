// The source lines and functions of code addresses.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace convoy::emulator {

/// A source line. Empty where the program has no line numbers, or addr2line (binutils) is not installed.
struct SourceLine {
  std::string function;  // without its namespaces and arguments: "map_kernel"
  std::string file;      // relative to the repository: "kernels/cuda/primitives/map.h"
  int line = 0;
};

/// Returns, for each address, the lines of the functions that are inlined into one another there, the
/// innermost one first. The addresses are those of SiteCounts and of kernels.
std::vector<std::vector<SourceLine>> source_lines(std::span<const void* const> addresses);

}  // namespace convoy::emulator
