// kernels/cuda/cudnn/channel_padding.h.
#include "convoy/kernels/cuda/cudnn/channel_padding.h"

#include <gtest/gtest.h>

#include <functional>
#include <variant>

#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

template <class T>
class CudaChannelPadding : public GpuTest {};
using CudaChannelPaddingTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CudaChannelPadding, CudaChannelPaddingTypes);

TYPED_TEST(CudaChannelPadding, PadsWithZerosAndCutsAgain) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  CudaStream& stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
  struct Case {
    std::int64_t rows, channels, padded;
  };
  for (const auto& [rows, channels, padded] : {Case{35, 3, 16}, Case{600, 1, 8}, Case{7, 9, 16},
                                               Case{5, 16, 16}, Case{37, 24, 32}, Case{3, 40, 64}}) {
    SCOPED_TRACE(::testing::Message() << rows << " rows, " << channels << " channels of " << padded);
    const auto values = Array<T>::random({1, rows, channels}, 1);
    const DeviceArray<T> x(gpu, values), wide(gpu, Array<T>({1, rows, padded}, static_cast<T>(7))),
        again(gpu, Array<T>({1, rows, channels}, static_cast<T>(7)));
    kernels::channel_padding::pad_channels(stream, x.view(), wide.view());
    kernels::channel_padding::cut_channels(stream, wide.view(), again.view());
    const Array<T> found = wide.values(), cut = again.values();
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t c = 0; c < padded; ++c) {
        const double expected =
            c < channels ? value_of(values[static_cast<std::size_t>(row * channels + c)]) : 0;
        ASSERT_EQ(value_of(found[static_cast<std::size_t>(row * padded + c)]), expected) << row << ", " << c;
      }
    for (std::size_t e = 0; e < values.size(); ++e) ASSERT_EQ(value_of(cut[e]), value_of(values[e])) << e;
  }
}

TYPED_TEST(CudaChannelPadding, DoesNothingWithoutRows) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  CudaStream& stream = std::get<std::reference_wrapper<CudaStream>>(gpu.stream());
  const DeviceArray<TypeParam> x(gpu, Array<TypeParam>({0, 3})), y(gpu, Array<TypeParam>({0, 16}));
  kernels::channel_padding::pad_channels(stream, x.view(), y.view());
  kernels::channel_padding::cut_channels(stream, y.view(), x.view());
  gpu.synchronize();
}

}  // namespace
}  // namespace convoy::testing
