// Winograd's convolution on the CPU: transforms of tiles and filters, one GEMM per point, and the output
// transform.
#include "convoy/kernels/cpu/winograd/conv2d.h"

#include <algorithm>
#include <array>
#include <vector>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/small_gemm.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/cpu/winograd/transforms.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels::winograd {
namespace {

using simd::kLanes;
using simd::load;
using simd::store;

constexpr std::int64_t kPanel = simd::kBlockColumns * kLanes;  // columns that one GEMM call computes

// Limit of a thread's working set in floats: the transformed inputs and the GEMM results of one block of
// tiles. It fits the L2 cache of a core.
constexpr std::int64_t kThreadCache = std::int64_t{192} << 10;
// Limit in floats of the transformed x and dy of one chunk of tiles, which all threads share to compute the
// filter's gradient. It fits the last-level cache.
constexpr std::int64_t kSharedCache = std::int64_t{1} << 20;
// Minimum number of GEMM rows that use a matrix of the transformed filter each time it is read from memory.
constexpr std::int64_t kMinRowsPerFilter = 56;
// Minimum number of tiles that are summed before the transformed filter gradient, which is as large as the
// transformed filter, is written.
constexpr std::int64_t kMinChunkTiles = 128;

// Matrices [input channels, output channels] of the transformed filter.
constexpr int kFilters = kValues * kValues;

/// The points of both axes, ordered by the matrix of the transformed filter that is multiplied there.
template <class Scheme>
struct Points {
  static constexpr int kAxis = Scheme::Input::kTo, kCount = kAxis * kAxis;
  std::array<int, kCount> ordered{};
  std::array<int, kFilters + 1> first{};  // index in `ordered` of each matrix's first point

  constexpr Points() {
    int n = 0;
    for (int filter = 0; filter < kFilters; ++filter) {
      first[filter] = n;
      for (int point = 0; point < kCount; ++point)
        if (Scheme::kValueAt[point / kAxis] * kValues + Scheme::kValueAt[point % kAxis] == filter)
          ordered[n++] = point;
    }
    first[kFilters] = n;
  }
  static constexpr std::int64_t min_tiles() { return kMinRowsPerFilter * kFilters / kCount; }
};
template <class Scheme>
constexpr Points<Scheme> kPointsOf;

/// The temporary memory of one call.
struct Scratch {
  explicit Scratch(CpuStream& stream) : filters(stream), values(stream), zeros(stream) {}
  Workspace filters, values, zeros;
};

/// Returns `channels` zeros, which replace the pixels outside the image.
template <class T>
const T* zeros(Scratch& scratch, std::int64_t channels) {
  T* const data = scratch.zeros.array<T>(channels);
  std::fill_n(data, channels, T(0.0F));
  return data;
}

/// The layout of a matrix stored in panels of kPanel columns. The last panel may be narrower. The rows of a
/// panel are contiguous and follow each other.
struct Panels {
  std::int64_t rows, columns;

  std::int64_t size() const { return rows * columns; }
  std::int64_t width(std::int64_t column) const {
    return std::min(kPanel, columns - column / kPanel * kPanel);
  }
  std::int64_t at(std::int64_t row, std::int64_t column) const {
    return column / kPanel * kPanel * rows + row * width(column) + column % kPanel;
  }
};

/// Transforms a filter [o, 3, 3, i] to kFilters matrices [input channels, output channels] in `u`.
template <class Transform, class T>
void transform_filters(CpuStream& stream, const T* filter, std::int64_t o, std::int64_t i, float* u) {
  const Panels panels{i, o};
  parallel_for(stream, o / kLanes, 1, [&](std::int64_t begin, std::int64_t end) {
    // The filter has vectors of input channels, `u` has vectors of output channels, so squares of both are
    // transposed.
    std::vector<float> square(static_cast<std::size_t>(kFilters * kLanes * kLanes));
    for (std::int64_t first = begin * kLanes; first < end * kLanes; first += kLanes)
      for (std::int64_t channel = 0; channel < i; channel += kLanes) {
        for (std::int64_t row = 0; row < kLanes; ++row) {
          const T* const taps = filter + (first + row) * kTaps * kTaps * i + channel;
          transform<Transform>([&](int y, int x, Vec& tap) { load(taps + (y * kTaps + x) * i, tap); },
                               [&](int y, int x, const Vec& value) {
                                 store(square.data() + ((y * kValues + x) * kLanes + row) * kLanes, value);
                               });
        }
        for (std::int64_t matrix = 0; matrix < kFilters; ++matrix)
          for (std::int64_t column = 0; column < kLanes; ++column) {
            const float* const from = square.data() + matrix * kLanes * kLanes + column;
            float* const to = u + matrix * panels.size() + panels.at(channel + column, first);
            for (std::int64_t row = 0; row < kLanes; ++row) to[row] = from[row * kLanes];
          }
      }
  });
}

/// As transform_filters(), for the convolution from dy to dx: the filter is rotated by 180 degrees, and the
/// matrices in `u` are [o, i].
template <class Transform, class T>
void transform_rotated_filters(CpuStream& stream, const T* filter, std::int64_t o, std::int64_t i, float* u) {
  const Panels panels{o, i};
  parallel_for(stream, o, item_grain(kFilters * i), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t channel = 0; channel < i; channel += kLanes) {
        const T* const taps = filter + row * kTaps * kTaps * i + channel;
        transform<Transform>(
            [&](int y, int x, Vec& tap) { load(taps + ((kTaps - 1 - y) * kTaps + kTaps - 1 - x) * i, tap); },
            [&](int y, int x, const Vec& value) {
              store(u + (y * kValues + x) * panels.size() + panels.at(row, channel), value);
            });
      }
  });
}

/// Computes c [rows, columns] = a b, or c += a b if `add`, for matrices with the given strides of their rows, of the columns
/// of a, and rows of b. The terms of each sum are added in the order of k. `columns` is at most kPanel, in whole vectors.
void multiply_panel(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                    std::int64_t a_row, std::int64_t a_k, const float* b, std::int64_t b_k, float* c,
                    std::int64_t c_row, bool add) {
  constexpr std::int64_t kDepthBlock = 64;  // rows of b that stay in the L1 cache for all rows of c
  for (std::int64_t k = 0; k < depth; k += kDepthBlock)
    simd::gemm_rows</*kPrefetches=*/true, simd::kBlockColumns>(
        rows, columns, {1, std::min(kDepthBlock, depth - k)}, {a + k * a_k, a_row, 0, a_k},
        {b + k * b_k, 0, b_k},
        {.data = c, .row = c_row, .start = add || k > 0 ? c : nullptr, .start_row = c_row});
}

/// Computes `out`, the correlation of `in` with the filters whose transform is `u`. T is the element type of
/// the images, f32 or bf16.
template <class Scheme, class T>
struct Correlation {
  using Input = typename Scheme::Input;
  using Output = typename Scheme::Output;
  static constexpr const Points<Scheme>& kPoints = kPointsOf<Scheme>;

  const T* in;
  Images inputs;
  const float* u;
  std::int64_t padding;
  const T* bias;  // null: no bias
  bool relu;
  GradView out;
  Images outputs;

  void run(CpuStream& stream, Scratch& scratch) const;

 private:
  void run_tiles(const Tiling& tiling, std::int64_t begin, std::int64_t end, const T* outside, float* v,
                 float* m) const;
  void put_outputs(const Tiling& tiling, std::int64_t tile, const float* m, std::int64_t point_stride) const;
  // One vector is added to the size, so that the values of a pixel at all points do not map to the same cache
  // set.
  std::int64_t input_stride(std::int64_t tiles) const { return tiles * inputs.channels + kLanes; }
  std::int64_t output_stride(std::int64_t tiles) const { return tiles * outputs.channels + kLanes; }
};

template <class Scheme, class T>
void Correlation<Scheme, T>::run(CpuStream& stream, Scratch& scratch) const {
  const Tiling tiling(outputs, Output::kTo);
  const std::int64_t min_tiles = kPoints.min_tiles();
  const std::int64_t max_tiles =
      std::clamp(kThreadCache / (kPoints.kCount * (inputs.channels + outputs.channels)), min_tiles,
                 std::max(min_tiles, tiling.count));
  const std::int64_t threads = stream.threads();
  const std::int64_t blocks =
      std::max(std::min(threads, tiling.count), (tiling.count + max_tiles - 1) / max_tiles);
  const std::int64_t thread_floats = kPoints.kCount * (input_stride(max_tiles) + output_stride(max_tiles));
  float* const values = scratch.values.array<float>(threads * thread_floats);
  const T* const outside = zeros<T>(scratch, inputs.channels);
  parallel_for_each(stream, blocks, [&](std::int64_t thread, std::int64_t block) {
    float* const v = values + thread * thread_floats;
    run_tiles(tiling, tiling.count * block / blocks, tiling.count * (block + 1) / blocks, outside, v,
              v + kPoints.kCount * input_stride(max_tiles));
  });
}

template <class Scheme, class T>
void Correlation<Scheme, T>::run_tiles(const Tiling& tiling, std::int64_t begin, std::int64_t end,
                                       const T* outside, float* v, float* m) const {
  const std::int64_t tiles = end - begin, i = inputs.channels, o = outputs.channels;
  const std::int64_t v_stride = input_stride(tiles), m_stride = output_stride(tiles);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const Window<Input::kFrom, const T> window(in, inputs, tiling, begin + tile, Scheme::kStep, -padding,
                                               outside);
    transform_window<Input>(window, i, [&](int point, std::int64_t channel, const Vec& value) {
      store(v + point * v_stride + tile * i + channel, value);
    });
  }
  const Panels panels{i, o};
  for (int filter = 0; filter < kFilters; ++filter)
    for (std::int64_t column = 0; column < o; column += kPanel)
      for (int k = kPoints.first[filter]; k < kPoints.first[filter + 1]; ++k)
        multiply_panel(tiles, panels.width(column), i, v + kPoints.ordered[k] * v_stride, i, 1,
                       u + filter * panels.size() + panels.at(0, column), panels.width(column),
                       m + kPoints.ordered[k] * m_stride + column, o, false);
  for (std::int64_t tile = 0; tile < tiles; ++tile) put_outputs(tiling, begin + tile, m + tile * o, m_stride);
}

template <class Scheme, class T>
void Correlation<Scheme, T>::put_outputs(const Tiling& tiling, std::int64_t tile, const float* m,
                                         std::int64_t point_stride) const {
  const Window<Output::kTo, T> window(out.as<T>(), outputs, tiling, tile, Output::kTo, 0, nullptr);
  for (std::int64_t channel = 0; channel < outputs.channels; channel += kLanes) {
    Vec shift{};
    if (bias != nullptr) load(bias + channel, shift);
    transform<Output>(
        [&](int y, int x, Vec& value) { load(m + (y * kPoints.kAxis + x) * point_stride + channel, value); },
        [&](int y, int x, const Vec& value) {
          T* const pixel = window.pixels[y][x];
          if (pixel == nullptr) return;
          Vec sum = value + shift;
          if (relu) sum = 0.0F > sum ? Vec{} : sum;  // NaN propagates
          if (out.mode == GradMode::accumulate) {
            Vec before;
            load(pixel + channel, before);
            sum += before;
          }
          store(pixel + channel, sum);
        });
  }
}

/// Computes the transformed filter gradient: du [o, i] for each matrix is the sum over all tiles of the
/// transformed dy times the transformed x. Works on one chunk of tiles at a time: first all threads
/// transform, then each thread multiplies at its own points. The order of every sum depends on the sizes
/// only.
template <class Scheme, class T>
void sum_tiles(CpuStream& stream, const ConvSizes& s, Scratch& scratch, const T* x, const T* dy, float* du) {
  using Input = typename Scheme::Input;
  using OutputGradient = typename Scheme::OutputGradient;
  constexpr const Points<Scheme>& kPoints = kPointsOf<Scheme>;
  const Images inputs = s.inputs(), outputs = s.outputs();
  const Tiling tiling(outputs, OutputGradient::kFrom);
  const std::int64_t i = inputs.channels, o = outputs.channels;
  const std::int64_t max_tiles = std::clamp(kSharedCache / (kPoints.kCount * (i + o)), kMinChunkTiles,
                                            std::max(kMinChunkTiles, tiling.count));
  const std::int64_t chunks = (tiling.count + max_tiles - 1) / max_tiles;
  float* const v = scratch.values.array<float>(kPoints.kCount * (max_tiles * (i + o) + 2 * kLanes));
  const T* const outside = zeros<T>(scratch, std::max(i, o));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t first = tiling.count * chunk / chunks;
    const std::int64_t tiles = tiling.count * (chunk + 1) / chunks - first;
    const Panels x_panels{tiles, i};
    // The layout of the transformed dy: blocks of kLanes channels, which are the rows of the GEMM.
    const auto dy_index = [&](std::int64_t tile, std::int64_t channel) {
      return channel / kLanes * kLanes * tiles + tile * kLanes + channel % kLanes;
    };
    const std::int64_t v_stride = x_panels.size() + kLanes, z_stride = tiles * o + kLanes;
    float* const z = v + kPoints.kCount * v_stride;
    constexpr std::int64_t kTilesAtOnce = 4;
    parallel_for_each(
        stream, (tiles + kTilesAtOnce - 1) / kTilesAtOnce, [&](std::int64_t, std::int64_t item) {
          const std::int64_t begin = item * kTilesAtOnce, end = std::min(begin + kTilesAtOnce, tiles);
          for (std::int64_t tile = begin; tile < end; ++tile) {
            const Window<Input::kFrom, const T> window(x, inputs, tiling, first + tile, Scheme::kStep,
                                                       -s.padding.height, outside);
            transform_window<Input>(window, i, [&](int point, std::int64_t channel, const Vec& value) {
              store(v + point * v_stride + x_panels.at(tile, channel), value);
            });
            const Window<kOut, const T> gradient(dy, outputs, tiling, first + tile, kOut, 0, outside);
            transform_window<OutputGradient>(gradient, o,
                                             [&](int point, std::int64_t channel, const Vec& value) {
                                               store(z + point * z_stride + dy_index(tile, channel), value);
                                             });
          }
        });
    const std::int64_t row_blocks = o / kLanes;
    parallel_for_each(stream, kFilters * row_blocks, [&](std::int64_t, std::int64_t item) {
      const std::int64_t filter = item / row_blocks, row = item % row_blocks * kLanes;
      const int from = kPoints.first[filter], to = kPoints.first[filter + 1];
      for (int k = from; k < to; ++k) {
        const std::int64_t point = kPoints.ordered[k];
        for (std::int64_t column = 0; column < i; column += kPanel)
          multiply_panel(kLanes, x_panels.width(column), tiles, z + point * z_stride + dy_index(0, row), 1,
                         kLanes, v + point * v_stride + x_panels.at(0, column), x_panels.width(column),
                         du + filter * o * i + row * i + column, i, chunk > 0 || k > from);
      }
    });
  }
}

template <class Scheme, class T>
void run_forward(CpuStream& stream, const ConvSizes& s, const T* x, const T* filter, const T* bias, bool relu,
                 View y) {
  Scratch scratch(stream);
  float* const u = scratch.filters.array<float>(kFilters * s.i * s.o);
  transform_filters<typename Scheme::Filter>(stream, filter, s.o, s.i, u);
  Correlation<Scheme, T>{.in = x,
                         .inputs = s.inputs(),
                         .u = u,
                         .padding = s.padding.height,
                         .bias = bias,
                         .relu = relu,
                         .out = GradView(y),
                         .outputs = s.outputs()}
      .run(stream, scratch);
}

/// `padding` is the padding of dy.
template <class Scheme, class T>
void run_backward_data(CpuStream& stream, const ConvSizes& s, const T* dy, const T* filter,
                       std::int64_t padding, GradView dx) {
  Scratch scratch(stream);
  float* const u = scratch.filters.array<float>(kFilters * s.i * s.o);
  transform_rotated_filters<typename Scheme::Filter>(stream, filter, s.o, s.i, u);
  Correlation<Scheme, T>{.in = dy,
                         .inputs = s.outputs(),
                         .u = u,
                         .padding = padding,
                         .bias = nullptr,
                         .relu = false,
                         .out = dx,
                         .outputs = s.inputs()}
      .run(stream, scratch);
}

template <class Scheme, class T>
void run_backward_filter(CpuStream& stream, const ConvSizes& s, const T* dy, const T* x, GradView dfilter) {
  Scratch scratch(stream);
  float* const du = scratch.filters.array<float>(kFilters * s.i * s.o);
  sum_tiles<Scheme>(stream, s, scratch, x, dy, du);
  parallel_for(stream, s.o, item_grain(kFilters * s.i), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t channel = 0; channel < s.i; channel += kLanes)
        transform<typename Scheme::FilterGradient>(
            [&](int vy, int vx, Vec& value) {
              load(du + (vy * kValues + vx) * s.o * s.i + row * s.i + channel, value);
            },
            [&](int ty, int tx, const Vec& value) {
              T* const tap = dfilter.as<T>() + ((row * kTaps + ty) * kTaps + tx) * s.i + channel;
              Vec sum = value;
              if (dfilter.mode == GradMode::accumulate) {
                Vec before;
                load(tap, before);
                sum += before;
              }
              store(tap, sum);
            });
  });
}

/// The types of images. All arithmetic is f32.
constexpr ElementTypes<float, bfloat16> kImageTypes{"Winograd convolution"};

}  // namespace

bool pays(const ConvSizes& s) {
  if (s.groups > 1 || s.kh != kTaps || s.kw != kTaps || s.i % kLanes != 0 || s.o % kLanes != 0 ||
      !s.is_uniform())
    return false;
  const std::int64_t tiles = Tiling(s.outputs(), kOut).count;
  const std::int64_t direct = kTaps * kTaps * s.n * s.oh * s.ow;  // multiplications per pair of channels
  if (s.stride == 1) return s.padding.height < kTaps && 2 * Points<UnitStride>::kCount * tiles <= direct;
  if (s.stride == 2) return s.padding == 1 && 3 * Points<StrideTwo>::kCount * tiles <= 2 * direct;
  return false;
}

void forward(CpuStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
             Conv2dOptions options) {
  const ConvSizes s(x.shape, filter.shape, y.shape, options);
  dispatch(kImageTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = s.stride == 1 ? run_forward<UnitStride, T> : run_forward<StrideTwo, T>;
    run(stream, s, x.as<T>(), filter.as<T>(), bias.as<T>(), options.relu, y);
  });
}

void backward_data(CpuStream& stream, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options) {
  const ConvSizes s(dx.shape, filter.shape, dy.shape, options);
  dispatch(kImageTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (s.stride == 1) {
      run_backward_data<UnitStride>(stream, s, dy.as<T>(), filter.as<T>(), kTaps - 1 - s.padding.height, dx);
    } else {
      run_backward_data<StrideTwoBackwardData>(stream, s, dy.as<T>(), filter.as<T>(), 0, dx);
    }
  });
}

void backward_filter(CpuStream& stream, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options) {
  const ConvSizes s(x.shape, dfilter.shape, dy.shape, options);
  dispatch(kImageTypes, dfilter.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = s.stride == 1 ? run_backward_filter<UnitStride, T> : run_backward_filter<StrideTwo, T>;
    run(stream, s, dy.as<T>(), x.as<T>(), dfilter);
  });
}

}  // namespace convoy::kernels::winograd
