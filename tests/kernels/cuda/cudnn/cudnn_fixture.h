// A fixture for convolutions on an emulated GPU, whose cuDNN has known engines, notes and times
// (tests/cuda_emulator/vendor/vendor.h).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/kernels/conv2d.h"
#include "tests/cuda_emulator/vendor/vendor.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {

// Channels that fill vectors in f32 and in half precision.
inline constexpr ConvCase kBody{2, 6, 6, 16, 16, 3, 3, 1, 1};
inline constexpr std::string_view kForward = "conv2d forward f32 n2 6x6x16 k16 3x3 s1 p1";
inline constexpr std::string_view kForwardHalf = "conv2d forward bf16 n2 6x6x16 k16 3x3 s1 p1";
// The first choice of the knobs; its workspace has two f32 partial sums of y.
inline constexpr std::string_view kKnobs = "engine 11 knobs 0=2 2=0 workspace 9216";

/// Returns `status` for each of the engines.
inline emulator::CudnnSettings::Failures failures(const std::vector<std::int64_t>& engines,
                                                  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED) {
  emulator::CudnnSettings::Failures result;
  for (const std::int64_t index : engines) result[index] = status;
  return result;
}
inline const std::vector<std::int64_t> kEveryEngine = {
    emulator::cudnn_engine::kPlain,      emulator::cudnn_engine::kRefused,
    emulator::cudnn_engine::kGreedy,     emulator::cudnn_engine::kNondeterministic,
    emulator::cudnn_engine::kTensorCore, emulator::cudnn_engine::kKnobs};

/// Returns how often each engine ran since the last call.
inline std::map<std::int64_t, int> runs_by_engine() {
  auto counts = emulator::vendor_counts().convolutions;
  std::erase_if(counts, [](const auto& count) { return count.second == 0; });
  emulator::reset_vendor_counts();
  return counts;
}

/// The arrays of a convolution on a separate Device.
template <class T>
struct Convolution {
  explicit Convolution(const CudaOptions& options = {}, const ConvCase& problem = kBody)
      : shape(problem), gpu(DeviceContext::create_cuda(0, options)) {}

  void forward(bool with_bias = false, bool relu = false) {
    const Conv2dOptions options{.stride = shape.stride, .padding = shape.padding, .relu = relu};
    on(gpu.stream(), [&](auto& stream) {
      kernels::conv2d_forward(stream, x.view(), filter.view(),
                              with_bias ? ConstView(bias.view()) : ConstView(), y.view(), options);
    });
    gpu.synchronize();
  }
  void store(std::string_view key, std::string_view value) {
    gpu.algorithm_cache().insert(std::string(key), std::string(value));
  }

  ConvCase shape;
  DeviceContext gpu;
  DeviceArray<T> x{gpu, Array<T>::random(shape.x(), 1)};
  DeviceArray<T> filter{gpu, Array<T>::random(shape.filter(), 2)};
  DeviceArray<T> bias{gpu, Array<T>::random({shape.o}, 3)};
  DeviceArray<T> y{gpu, shape.y()};
};

class CudnnConv2d : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    emulator::reset_vendor_counts();
  }
  /// Changes the settings of the emulator's cuDNN for the lifetime of the result.
  template <class F>
  static std::unique_ptr<emulator::ScopedVendorSettings> with(const F& change) {
    emulator::VendorSettings settings = emulator::vendor_settings();
    change(settings.cudnn);
    return std::make_unique<emulator::ScopedVendorSettings>(settings);
  }
};

}  // namespace convoy::testing
