// kernels/normalization.h on the GPU. A team of threads processes a group: it reads the group for the mean,
// again for the variance and what the rounding of the mean lost, and again to normalize it. The later reads
// are served by the caches. The gradients of weight and bias are sums over the rows of each channel, as in
// batchnorm_backward.cu.
#include "convoy/kernels/normalization.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/channel_sums.h"
#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/row_team.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

using namespace cuda;

constexpr int kSumRows = 2;  // rows in flight, of two arrays

/// The elements of the groups of x [N, P, C].
struct Groups {
  std::int64_t count;     // N G
  std::int64_t elements;  // of a group
  std::int64_t channels;  // C
  std::int64_t pixels;
  Divisor groups, group_channels;

  explicit Groups(const GroupSizes& sizes)
      : count(sizes.samples * sizes.groups),
        elements(sizes.pixels * sizes.group_channels()),
        channels(sizes.channels),
        pixels(sizes.pixels),
        groups(sizes.groups),
        group_channels(sizes.group_channels()) {}

  /// Returns the first channel of a group, and the index of its first element.
  __device__ std::int64_t first_channel(std::int64_t group) const {
    return (group - groups.quotient(group) * groups.value()) * group_channels.value();
  }
  __device__ std::int64_t first_element(std::int64_t group) const {
    return groups.quotient(group) * pixels * channels + first_channel(group);
  }
};

/// Calls f(offset, c, value) for this thread's elements of the group whose first element is *x: the index
/// relative to x, the channel in the group, and the value.
template <class Team, class T, class F>
__device__ void for_each_of_group(const Groups& groups, const T* x, F f) {
  if (groups.pixels == 1)
    return for_each_of_row<Team>(x, groups.elements,
                                 [&f](std::int64_t i, compute_t<T> value) { f(i, i, value); });
  for (std::int64_t i = Team::rank(); i < groups.elements; i += Team::kSize) {
    const std::int64_t pixel = groups.group_channels.quotient(i);
    const std::int64_t c = i - pixel * groups.group_channels.value();
    const std::int64_t offset = pixel * groups.channels + c;
    f(offset, c, widen(x[offset]));
  }
}

template <class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock)
    group_norm_kernel(Groups groups, const T* x, const C* weight, const C* bias, C epsilon, T* y,
                      GroupMean<C>* means, C* inverse_std) {
  const std::int64_t group = Team::row();
  if (group >= groups.count) return;  // true for all threads of a team
  const std::int64_t first = groups.first_element(group);
  const T* const in = x + first;
  const C count = static_cast<C>(groups.elements);
  C sum = 0;
  for_each_of_group<Team>(groups, in, [&sum](std::int64_t, std::int64_t, C value) { sum += value; });
  GroupMean<C> mean{.rounded = Team::reduce(sum, Sum{}) / count, .rest = 0};
  C rest = 0, squares = 0;
  for_each_of_group<Team>(groups, in, [&rest, &squares, mean](std::int64_t, std::int64_t, C value) {
    const C distance = mean.distance(value);
    rest += distance;
    squares += distance * distance;
  });
  mean.rest = Team::reduce(rest, Sum{}) / count;
  const C variance = Team::reduce(squares, Sum{}) / count - mean.rest * mean.rest;
  const C factor = 1 / std::sqrt((variance > 0 || variance != variance ? variance : C{0}) + epsilon);
  const std::int64_t channel = groups.first_channel(group);
  const C* const scales = weight != nullptr ? weight + channel : nullptr;
  const C* const shifts = bias != nullptr ? bias + channel : nullptr;
  if (Team::rank() == 0) {
    means[group] = mean;
    inverse_std[group] = factor;
  }
  for_each_of_group<Team>(groups, in, [=](std::int64_t i, std::int64_t c, C value) {
    const C scale = scales != nullptr ? scales[c] : C{1};
    const C shift = shifts != nullptr ? shifts[c] : C{0};
    y[first + i] = narrow<T>(mean.distance(value) * factor * scale + shift);
  });
}

template <class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock)
    group_norm_data_gradient_kernel(Groups groups, const T* dy, const T* x, const C* weight,
                                    const GroupMean<C>* means, const C* inverse_std, GradMode mode, T* dx) {
  const std::int64_t group = Team::row();
  if (group >= groups.count) return;
  const std::int64_t first = groups.first_element(group), channel = groups.first_channel(group);
  const GroupMean<C> mean = means[group];
  const C factor = inverse_std[group];
  const T* const in = x + first;
  const T* const dys = dy + first;
  T* const out = dx + first;
  const C* const scales = weight != nullptr ? weight + channel : nullptr;
  const auto gradient = [=](std::int64_t i, std::int64_t c) {
    return scales != nullptr ? widen(dys[i]) * scales[c] : widen(dys[i]);
  };
  C sum = 0, dot = 0;
  for_each_of_group<Team>(groups, in, [&](std::int64_t i, std::int64_t c, C value) {
    const C g = gradient(i, c);
    sum += g;
    dot += g * (mean.distance(value) * factor);
  });
  const C count = static_cast<C>(groups.elements);
  const C mean_gradient = Team::reduce(sum, Sum{}) / count;
  const C slope = Team::reduce(dot, Sum{}) / count;
  for_each_of_group<Team>(groups, in, [=](std::int64_t i, std::int64_t c, C value) {
    const C result = factor * (gradient(i, c) - mean_gradient - mean.distance(value) * factor * slope);
    out[i] = narrow<T>(mode == GradMode::accumulate ? widen(out[i]) + result : result);
  });
}

// Reads dy and x; writes partials [row_blocks, 2, C]: the sums of dy and of dy xh. A row is a pixel. The
// last block of each tile puts both gradients of its channels.
template <int kWidth, class T>
__global__ void __launch_bounds__(kChannelBlock, kReductionBlocksOfSm)
    group_norm_sums_kernel(ChannelTiling tiling, bool is_aligned, Divisor pixels, Divisor group_channels,
                           std::int64_t groups, const T* dy, const T* x, const GroupMean<compute_t<T>>* means,
                           const compute_t<T>* inverse_std, compute_t<T>* partials, unsigned* tickets,
                           ChannelGradient<compute_t<T>> dweight, ChannelGradient<compute_t<T>> dbias) {
  using C = compute_t<T>;
  const ThreadTile tile(tiling, kWidth);
  ChannelPairs<C, kWidth> sums;
  const std::int64_t stride = tile.row_stride * tiling.channels;
  for_row_groups<kSumRows>(tile, [&](auto count, std::int64_t row) {
    const std::int64_t first = row * tiling.channels + tile.channel;
    RowPacks<T, kWidth, count()> gradients, data;
    gradients.load(dy + first, stride, is_aligned);
    data.load(x + first, stride, is_aligned);
#pragma unroll
    for (int r = 0; r < count(); ++r) {
      const std::int64_t first_group = pixels.quotient(row + r * tile.row_stride) * groups;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const std::int64_t group = first_group + group_channels.quotient(tile.channel + i);
        sums.first[i] += gradients.at(r, i);
        sums.second[i] += gradients.at(r, i) * (means[group].distance(data.at(r, i)) * inverse_std[group]);
      }
    }
  });
  auto& scratch = shared_memory<TileScratch<C, kWidth>>();
  reduce_rows(scratch.block, tiling.lanes, sums, AddPairs{});
  sum_tile(scratch, tiling, tile, partials, tickets, sums, SumOfPartials{},
           [&](std::int64_t c, double sum, double dot) {
             dbias.put(c, dbias.before(c), sum);
             dweight.put(c, dweight.before(c), dot);
           });
}

template <class T>
void parameter_gradients(CudaStream& stream, const GroupSizes& sizes, const ConstView& dy, const ConstView& x,
                         const ConstView& means, const ConstView& inverse_std, const GradView& dweight,
                         const GradView& dbias) {
  using C = compute_t<T>;
  if (sizes.channels == 0) return;
  const std::int64_t rows = sizes.samples * sizes.pixels;
  if (rows == 0) {
    for (const GradView& gradient : {dweight, dbias})
      if (gradient.wanted() && gradient.mode == GradMode::overwrite) fill(stream, 0, gradient);
    return;
  }
  const bool aligned = is_aligned(dy.data) && is_aligned(x.data);
  choose_width<T>(sizes.channels, [&](auto width) {
    const ChannelTiling tiling = tile_channels(rows, sizes.channels, width, reduction(stream));
    const Scratch partials(stream, partial_values(tiling) * sizeof(C));
    launch(stream, tiling.grid(), kChannelBlock, sizeof(TileScratch<C, width()>),
           group_norm_sums_kernel<width(), T>, tiling, aligned, Divisor(sizes.pixels),
           Divisor(sizes.group_channels()), sizes.groups, dy.as<T>(), x.as<T>(), means.as<GroupMean<C>>(),
           inverse_std.as<C>(), partials.as<C>(), stream.tickets(), ChannelGradient<C>(dweight),
           ChannelGradient<C>(dbias));
  });
}

}  // namespace

void group_norm_forward(CudaStream& stream, ConstView x, ConstView weight, ConstView bias, double epsilon,
                        View y, View means, View inverse_std) {
  if (x.numel() == 0) return;
  const Groups groups(GroupSizes(x.shape, inverse_std.shape));
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const auto kernel_of = [](auto team) { return group_norm_kernel<decltype(team), T, C>; };
    launch_teams(stream, groups.count, groups.elements, kernel_of, groups, x.as<T>(), weight.as<C>(),
                 bias.as<C>(), static_cast<C>(epsilon), y.as<T>(), means.as<GroupMean<C>>(),
                 inverse_std.as<C>());
  });
}

void group_norm_backward(CudaStream& stream, ConstView dy, ConstView x, ConstView weight, ConstView means,
                         ConstView inverse_std, GradView dx, GradView dweight, GradView dbias) {
  const GroupSizes sizes(x.shape, inverse_std.shape);
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    if (dx.wanted() && x.numel() > 0) {
      const Groups groups(sizes);
      const auto kernel_of = [](auto team) { return group_norm_data_gradient_kernel<decltype(team), T, C>; };
      launch_teams(stream, groups.count, groups.elements, kernel_of, groups, dy.as<T>(), x.as<T>(),
                   weight.as<C>(), means.as<GroupMean<C>>(), inverse_std.as<C>(), dx.mode, dx.as<T>());
    }
    if (dweight.wanted() || dbias.wanted())
      parameter_gradients<T>(stream, sizes, dy, x, means, inverse_std, dweight, dbias);
  });
}

}  // namespace convoy::kernels
