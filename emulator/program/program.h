// What a translated CUDA program includes first: launches, shared memory and variables of the device as cuemu
// writes them (emulator/cuemu/translate.py), and the part of CUDA that emulator/include leaves out.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulator/program/device.h"
#include "emulator/program/host.h"
#include "emulator/program/program_interface.h"
#include "emulator/program/vector_types.h"

// The variables of the device. The linker defines the first and last address if there are any.
extern "C" __attribute__((weak)) char __start_cuemu_device[];
extern "C" __attribute__((weak)) char __stop_cuemu_device[];
#define CUEMU_DEVICE_VARIABLE __attribute__((section("cuemu_device")))
/// Of a function whose own accesses are not the program's.
#define CUEMU_PLAIN __attribute__((no_sanitize("thread")))

namespace cuemu {

inline const bool is_program = convoy::emulator::begin_program(__start_cuemu_device, __stop_cuemu_device);

/// What stands between <<< and >>>, and the __cluster_dims__ of the kernel.
struct Shape {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
  dim3 cluster{};

  Shape in_clusters(unsigned x, unsigned y = 1, unsigned z = 1) const {
    return {grid, block, shared_bytes, stream, dim3(x, y, z)};
  }
};
inline Shape shape(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  return {grid, block, shared_bytes, stream};
}
inline cudaLaunchAttribute cluster_attribute(dim3 cluster) {
  cudaLaunchAttribute result{};
  result.id = cudaLaunchAttributeClusterDimension;
  result.val.clusterDim = {cluster.x, cluster.y, cluster.z};
  return result;
}

/// Launches a kernel. Errors are returned by cudaGetLastError(). `kernel` is called once per thread, with
/// copies of the arguments.
template <class Kernel, class... Arguments>
void launch(const char* name, const Shape& shape, Kernel kernel, Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  cudaLaunchAttribute cluster = cluster_attribute(shape.cluster);
  config.attrs = &cluster;
  config.numAttrs = 1;
  convoy::emulator::submit(config, nullptr,
                           convoy::emulator::kernel_call([=]() CUEMU_PLAIN { kernel(arguments...); }), name);
}

/// cudaLaunchKernelEx of a kernel with __cluster_dims__.
template <class... Values>
cudaError_t launch_in_clusters(dim3 cluster, const cudaLaunchConfig_t* given, Values&&... values) {
  std::vector<cudaLaunchAttribute> attributes(given->attrs, given->attrs + given->numAttrs);
  attributes.push_back(cluster_attribute(cluster));
  cudaLaunchConfig_t config = *given;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return cudaLaunchKernelEx(&config, std::forward<Values>(values)...);
}

/// Describes an array of type T.
template <class T>
convoy::emulator::SharedArray described(const char* name) {
  convoy::emulator::SharedArray array{.name = name, .element_bytes = sizeof(std::remove_all_extents_t<T>)};
  array.dimensions = std::min<std::size_t>(std::rank_v<T>, 3);
  if constexpr (std::rank_v < T >> 0) array.extents[0] = std::extent_v<T, 0>;
  if constexpr (std::rank_v < T >> 1) array.extents[1] = std::extent_v<T, 1>;
  if constexpr (std::rank_v < T >> 2) array.extents[2] = std::extent_v<T, 2>;
  return array;
}

/// Returns a __shared__ variable of type T. `Key` is a type of its own for each declaration, and for each
/// instantiation of a template.
template <class T, class Key>
CUEMU_PLAIN T* static_shared(const char* name, Key, std::size_t alignment = 1) {
  static char key;
  return static_cast<T*>(
      convoy::emulator::static_shared(&key, sizeof(T), std::max(alignment, alignof(T)), described<T>(name)));
}
/// Returns an extern __shared__ array of elements of type T.
template <class T>
CUEMU_PLAIN T* dynamic_shared(const char* name) {
  convoy::emulator::name_dynamic_shared({.name = name, .element_bytes = sizeof(T)});
  return static_cast<T*>(convoy::emulator::dynamic_shared());
}

}  // namespace cuemu
