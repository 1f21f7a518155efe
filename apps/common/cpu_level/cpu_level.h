// The choice of the instructions that a program computes with on a CPU.
#pragma once

#include <string>
#include <vector>

namespace convoy {

/// Returns the levels of x86-64 processors that use_cpu_level() accepts, in ascending order.
std::vector<std::string> cpu_level_names();

/// Makes the kernels, oneDNN, OpenBLAS and the C library use the instructions of a level and no others. The
/// libraries are loaded before main, so unless the environment selects this level already, this starts the
/// program again with the same arguments and does not return. Call it before there are threads, ranks or
/// output. Throws UsageError for an unknown level, and if the processor or the build does not have it.
void use_cpu_level(const std::string& level);

/// Calls use_cpu_level() with the environment variable CONVOY_CPU_LEVEL, if it is set.
void use_cpu_level_of_environment();

}  // namespace convoy
