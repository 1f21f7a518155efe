// What the stub of the CUDA driver has recorded, for tests.
#pragma once

#include <string>
#include <vector>

namespace convoy::testing {

/// Returns a copy of each image (an ELF file of machine code for a GPU) that was passed to cuLibraryLoadData
/// since the last call, in order. Thread-safe.
std::vector<std::string> take_loaded_images();

}  // namespace convoy::testing
