// Convolution on the GPU for windows of few values, such as the 2x2 pixels of three channels of a whitening layer.
// Where each output has at most 16 products, the time is that of the memory accesses, and the tensor cores, for
// which cuDNN pads the channels, cannot help. Each thread computes one pack of channels of one pixel of y; a block
// keeps all filters in shared memory.
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cuda/primitives/windows.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::kVectorWidth;
using cuda::load_pack;
using cuda::Pack;
using cuda::PackCoordinates;
using cuda::PackGrid;
using cuda::Range;
using cuda::WindowAxis;

constexpr int kBlock = 256;
constexpr int kPacksOfBlock = 8 * kBlock;  // for which a block stores the filters once
constexpr std::int64_t kMaxTerms = 16;     // products of a sum
constexpr std::int64_t kMaxOutputs = 256;  // channels of y: their filters take up to 17 KiB of shared memory

struct DirectWindows {
  WindowAxis rows, columns;
  int inputs, outputs;  // numbers of channels

  explicit DirectWindows(const ConvSizes& c)
      : rows(c.h, c.oh, c.kh, c.stride.height, c.padding.height),
        columns(c.w, c.ow, c.kw, c.stride.width, c.padding.width),
        inputs(static_cast<int>(c.i)),
        outputs(static_cast<int>(c.o)) {}
  __device__ int terms() const { return rows.kernel() * columns.kernel() * inputs; }
};

/// Stores filter [outputs, terms] as [terms, outputs] in shared memory, and the bias or zeros after it.
template <class T>
__device__ void keep_filters(const DirectWindows& windows, const T* filter, const T* bias,
                             compute_t<T>* kept) {
  const int terms = windows.terms(), outputs = windows.outputs;
  for (int e = static_cast<int>(threadIdx.x); e < (terms + 1) * outputs; e += kBlock) {
    const int term = e / outputs, o = e - term * outputs;
    if (term < terms)
      kept[e] = cuda::widen(filter[o * terms + term]);
    else
      kept[e] = bias != nullptr ? cuda::widen(bias[o]) : compute_t<T>{0};
  }
}

/// Computes one pack of channels of one pixel of y.
template <class T>
__device__ void compute_pack(const DirectWindows& windows, const PackCoordinates& at, bool relu, const T* x,
                             const compute_t<T>* kept, T* y) {
  using C = compute_t<T>;
  constexpr int kWidth = kVectorWidth<T>, kPart = 4;
  C sum[kWidth];
  const auto for_each_part = [&](int row_of_kept, const auto& f) {
#pragma unroll
    for (int begin = 0; begin < kWidth; begin += kPart) {
      const Pack<C, kPart> part = load_pack<kPart>(kept + row_of_kept * windows.outputs + at.channel + begin);
#pragma unroll
      for (int i = 0; i < kPart; ++i) f(sum[begin + i], part.values[i]);
    }
  };
  for_each_part(windows.terms(), [](C& to, C value) { to = value; });
  const Range ys = windows.rows.pixels_of(at.y), xs = windows.columns.pixels_of(at.x);
  for (int row = ys.begin; row < ys.end; ++row)
    for (int column = xs.begin; column < xs.end; ++column) {
      const T* const pixel =
          x + ((at.image * windows.rows.pixels() + row) * windows.columns.pixels() + column) * windows.inputs;
      const int tap =
          (row - windows.rows.start(at.y)) * windows.columns.kernel() + column - windows.columns.start(at.x);
      for (int i = 0; i < windows.inputs; ++i) {
        const C value = cuda::widen(pixel[i]);
        for_each_part(tap * windows.inputs + i, [value](C& to, C weight) { to += value * weight; });
      }
    }
  Pack<T, kWidth> out;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    out.values[i] = cuda::narrow<T>(relu && C{0} > sum[i] ? C{0} : sum[i]);  // NaN propagates
  cuda::store_pack(y + at.pixel * windows.outputs + at.channel, out);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    conv2d_direct_kernel(PackGrid grid, DirectWindows windows, bool relu, const T* x, const T* filter,
                         const T* bias, T* y) {
  compute_t<T>* const kept = &cuda::shared_memory<compute_t<T>>();
  keep_filters(windows, filter, bias, kept);
  __syncthreads();
  const std::int64_t first = std::int64_t{blockIdx.x} * kPacksOfBlock + threadIdx.x;
  for (std::int64_t index = first; index < first + kPacksOfBlock && index < grid.size(); index += kBlock)
    compute_pack(windows, grid.coordinates(index), relu, x, kept, y);
}

}  // namespace

bool conv2d_forward_direct(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                           Conv2dOptions options) {
  const ConvSizes c(x.shape, filter.shape, y.shape, options);
  if (y.dtype == DType::f64 || y.numel() == 0 || c.groups > 1 || c.dilation != 1 ||
      c.kh * c.kw * c.i > kMaxTerms || c.o > kMaxOutputs)
    return false;
  bool is_done = false;
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) {
      if (!cuda::comes_in_packs<T>(c.o, y.data)) return;
      const PackGrid grid(y.shape, kVectorWidth<T>);
      const auto kept = static_cast<std::size_t>((c.kh * c.kw * c.i + 1) * c.o) * sizeof(compute_t<T>);
      launch(stream, blocks_for(grid.size(), kPacksOfBlock), kBlock, kept, conv2d_direct_kernel<T>, grid,
             DirectWindows(c), options.relu, x.as<T>(), filter.as<T>(), bias.as<T>(), y.as<T>());
      is_done = true;
    }
  });
  return is_done;
}

}  // namespace convoy::kernels
