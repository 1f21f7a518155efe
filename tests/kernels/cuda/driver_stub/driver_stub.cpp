// A CUDA driver without a GPU: a library named libcuda.so.1 in which loading code for a GPU succeeds, and all
// that would need a GPU fails with CUDA_ERROR_STUB_LIBRARY. README.md tells what it is for.
#include "tests/kernels/cuda/driver_stub/driver_stub.h"

#include <cuda.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

namespace {

std::mutex mutex;
std::vector<std::string> images;

/// Returns the bytes of an ELF file. Its section table is at its end, or its program headers are.
std::string_view elf_file(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  const std::size_t sections = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
  const std::size_t programs = header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize;
  return {static_cast<const char*>(image), std::max(sections, programs)};
}

/// The object that all handles refer to; nothing reads it.
char object;
template <class Handle>
CUresult give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&object);
  return CUDA_SUCCESS;
}

}  // namespace

namespace convoy::testing {

std::vector<std::string> take_loaded_images() {
  const std::lock_guard lock(mutex);
  return std::exchange(images, {});
}

}  // namespace convoy::testing

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "an error of the stub of the CUDA driver";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
CUresult cuDeviceGetCount(int* count) {
  *count = 1;  // with none, cuDNN compiles kernels and does not load them
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  const std::string_view file = elf_file(code);
  if (file.empty()) return CUDA_ERROR_INVALID_IMAGE;
  const std::lock_guard lock(mutex);
  images.emplace_back(file);
  return give(library);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) { return give(kernel); }
CUresult cuKernelGetFunction(CUfunction* function, CUkernel) { return give(function); }
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

CUresult refuse() { return CUDA_ERROR_STUB_LIBRARY; }

}  // extern "C"

// Functions that cuDNN and NVRTC look up, and hardly call without a GPU. These declarations have names of their
// own, because cuda.h declares the functions with their arguments.
#define CONVOY_REFUSE(name) \
  extern "C" CUresult refuse_##name() __asm__(#name) __attribute__((alias("refuse")))
CONVOY_REFUSE(cuCtxGetCurrent);
CONVOY_REFUSE(cuCtxGetLimit);
CONVOY_REFUSE(cuCtxPopCurrent);
CONVOY_REFUSE(cuCtxPushCurrent);
CONVOY_REFUSE(cuDeviceGet);
CONVOY_REFUSE(cuGetExportTable);
CONVOY_REFUSE(cuKernelGetAttribute);
CONVOY_REFUSE(cuLaunchCooperativeKernel);
CONVOY_REFUSE(cuLaunchKernel);
CONVOY_REFUSE(cuLaunchKernelEx);
CONVOY_REFUSE(cuLibraryLoadFromFile);
CONVOY_REFUSE(cuLinkAddData);
CONVOY_REFUSE(cuLinkComplete);
CONVOY_REFUSE(cuLinkCreate);
CONVOY_REFUSE(cuLinkDestroy);
CONVOY_REFUSE(cuOccupancyMaxPotentialClusterSize);
CONVOY_REFUSE(cuStreamGetCtx);
