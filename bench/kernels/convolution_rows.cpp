#include "bench/kernels/convolution_rows.h"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"

namespace convoy::bench {
namespace {

constexpr Conv2dOptions kOptions{.stride = 1, .padding = 1};

/// Returns a row whose kernel is called with a CUDA stream, two operands and the result.
template <class Kernel>
KernelRow row_of(std::string name, const Shape& shape, const Shape& second_shape, const Shape& out_shape,
                 Kernel kernel) {
  const std::int64_t channels = shape[3];
  return {.name = std::move(name),
          .shape = shape.text(),
          .bytes_read = 2 * (shape.numel() + second_shape.numel()),
          .bytes_written = 2 * out_shape.numel(),
          .flops = 2 * shape.numel() * 9 * channels,
          .prepare = [=](const DeviceContext& device) {
            const Tensor in = Tensor::full(shape, 0.5, DType::bf16, device);
            const Tensor second = Tensor::full(second_shape, 0.5, DType::bf16, device);
            const Tensor out = Tensor::full(out_shape, 0, DType::bf16, device);
            return [=] {
              on(device.stream(), [&](auto& stream) {
                if constexpr (std::is_same_v<decltype(stream), CudaStream&>)
                  kernel(stream, in.view(), second.view(), out.view());
              });
            };
          }};
}

Shape filter_shape(const Shape& in) { return {in[3], 3, 3, in[3]}; }

/// A row for forward or backward_data: input and filters.
template <class Kernel>
KernelRow pixel_row(std::string name, const Shape& shape, Kernel kernel) {
  return row_of(std::move(name), shape, filter_shape(shape), shape, kernel);
}

}  // namespace

std::vector<KernelRow> convolution_rows(std::int64_t batch, bool has_wgmma) {
  std::vector<KernelRow> rows;
  for (const auto& [side, channels] : {std::pair{32, 64}, {16, 128}, {8, 256}, {4, 512}}) {
    const Shape shape{batch, side, side, channels};
    const std::string name = fmt::format("conv2d_3x3/{}x{}x{}/", side, side, channels);
    rows.push_back(pixel_row(name + "forward/conv2d", shape, [](auto& s, auto x, auto filter, View y) {
      kernels::conv2d_forward(s, x, filter, {}, y, kOptions);
    }));
    rows.push_back(
        pixel_row(name + "backward_data/conv2d", shape, [](auto& s, auto dy, auto filter, View dx) {
          kernels::conv2d_backward_data(s, dy, filter, GradView(dx), kOptions);
        }));
    rows.push_back(row_of(name + "backward_filter/conv2d", shape, shape, filter_shape(shape),
                          [](auto& s, auto dy, auto x, View dfilter) {
                            kernels::conv2d_backward_filter(s, dy, x, GradView(dfilter), kOptions);
                          }));
    if (has_wgmma)
      rows.push_back(pixel_row(
          name + "forward/implicit_gemm", shape,
          [](auto& s, auto x, auto filter, View y) { kernels::implicit_gemm::forward(s, x, filter, y); }));
  }
  return rows;
}

}  // namespace convoy::bench
