// A fixture for tests of CUDA graphs: kernels to capture, and GPUs with each policy of the allocator.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {

inline constexpr std::int64_t kGraphCount = 257;

inline CudaStream& stream_of(const DeviceContext& device) {
  return std::get<std::reference_wrapper<CudaStream>>(device.stream());
}

inline Array<float> values_of(std::uint32_t seed) { return Array<float>::random({kGraphCount}, seed); }

/// Copies values to a buffer whose address a graph may use.
inline void write(const DeviceContext& device, const Array<float>& values, const DeviceArray<float>& to) {
  copy_bytes(Device::cpu(), values.view(), device, to.view());
}

/// Three kernels on fixed buffers. The last one allocates scratch memory.
struct GraphStep {
  explicit GraphStep(const DeviceContext& gpu)
      : device(gpu), x(gpu, {kGraphCount}), y(gpu, {kGraphCount}), z(gpu, {kGraphCount}), total(gpu, {1}) {}

  void enqueue() const {
    CudaStream& stream = stream_of(device);
    kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), y.view());
    kernels::add(stream, x.view(), y.view(), z.view(), 2, -0.5);
    kernels::sum(stream, z.view(), total.grad());
  }
  void expect_equals(const GraphStep& other) const {
    expect_same_bits(y.values(), other.y.values());
    expect_same_bits(z.values(), other.z.values());
    expect_same_bits(total.values(), other.total.values());
  }

  DeviceContext device;
  DeviceArray<float> x, y, z, total;
};

/// Creates a device on GPU 0 whose allocator caches blocks or releases them at once.
inline DeviceContext make_gpu(bool caches) {
  const char* const before = std::getenv("CONVOY_MEMORY_CACHE");
  const std::string value = before != nullptr ? before : "";
  setenv("CONVOY_MEMORY_CACHE", caches ? "on" : "off", 1);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  setenv("CONVOY_MEMORY_CACHE", value.c_str(), 1);
  return gpu;
}

class GraphTest : public GpuTest {
 protected:
  /// Calls f with a GPU for each order of execution and each policy of the allocator.
  void for_each_gpu(const std::function<void(const DeviceContext&)>& f) {
    for_each_order([&] {
      for (const bool caches : {true, false}) {
        SCOPED_TRACE(caches ? "cached memory" : "exact memory");
        f(make_gpu(caches));
      }
    });
  }
};

}  // namespace convoy::testing
