// The resources of kernels, read from machine code for a GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace convoy::testing {

/// What one kernel needs per thread.
struct KernelResources {
  std::string name;
  int registers = 0;
  int local_bytes = 0;  // local memory: spilled registers, and arrays that do not fit into registers
};

/// Returns the kernels of an image, an ELF file for a GPU ("cubin"). Their resources are attributes in its
/// section .nv.info. Throws DataError if the image is not such a file.
std::vector<KernelResources> kernels_of_image(std::string_view image);

}  // namespace convoy::testing
