// Reads the resources of kernels that NVRTC compiles from source text.
#include "tests/kernels/cuda/planned/cubin.h"

#include <gtest/gtest.h>
#include <nvrtc.h>

#include "convoy/kernels/base/error.h"

namespace convoy::testing {
namespace {

std::string compiled(const char* source) {
  nvrtcProgram program = nullptr;
  EXPECT_EQ(nvrtcCreateProgram(&program, source, "test.cu", 0, nullptr, nullptr), NVRTC_SUCCESS);
  const char* const options[] = {"--gpu-architecture=sm_90"};
  EXPECT_EQ(nvrtcCompileProgram(program, 1, options), NVRTC_SUCCESS);
  std::size_t bytes = 0;
  nvrtcGetCUBINSize(program, &bytes);
  std::string image(bytes, '\0');
  nvrtcGetCUBIN(program, image.data());
  nvrtcDestroyProgram(&program);
  return image;
}

TEST(Cubin, TellsRegistersAndLocalMemory) {
  const std::vector<KernelResources> kernels = kernels_of_image(compiled(R"(
extern "C" __global__ void in_registers(float* x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void in_local_memory(int* x, int n) {
  int values[25];
  for (int i = 0; i < 25; ++i) values[i] = x[i * n];
  for (int i = 0; i < n; ++i) values[(x[i] + i) % 25] = values[x[i] % 25];
  x[threadIdx.x] = values[n % 25];
})"));
  ASSERT_EQ(kernels.size(), 2u);
  for (const KernelResources& kernel : kernels) {
    EXPECT_GT(kernel.registers, 4) << kernel.name;
    EXPECT_LT(kernel.registers, 100) << kernel.name;
    EXPECT_EQ(kernel.local_bytes, kernel.name == "in_local_memory" ? 104 : 0) << kernel.name;
  }
}

TEST(Cubin, RefusesBytesThatAreNoImage) {
  const std::string image = compiled("extern \"C\" __global__ void k() {}");
  for (const std::string& bytes : {std::string(), std::string(1000, 'x'), image.substr(0, 200)})
    EXPECT_THROW(kernels_of_image(bytes), DataError);
}

}  // namespace
}  // namespace convoy::testing
