// The memory that this process may use at most.
#pragma once

#include <cstddef>
#include <filesystem>

namespace convoy {

/// Returns the number of bytes of physical memory, or the lowest limit of the control groups of this process
/// (memory.max of version 2, memory.limit_in_bytes of version 1) if that is lower: the limit of a container
/// or of a Slurm job. `root` is the root of the file system.
std::size_t host_memory_limit(const std::filesystem::path& root = "/");

}  // namespace convoy
