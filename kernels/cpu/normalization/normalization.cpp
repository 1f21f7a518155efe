// kernels/normalization.h on the CPU, one group at a time. All sums are f64.
#include "convoy/kernels/normalization.h"

#include <array>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include "convoy/kernels/cpu/primitives/channel_sums.h"

namespace convoy::kernels {
namespace {

/// Returns the sum of f(offset, c) over a group. `offset` is the index of an element relative to the first
/// one of the group, and c is its channel in the group.
template <class F>
double sum_group(const GroupSizes& sizes, F f) {
  std::array<double, kReductionLanes> lanes{};
  const std::int64_t channels = sizes.group_channels();
  for (std::int64_t pixel = 0; pixel < sizes.pixels; ++pixel) {
    const std::int64_t first = pixel * sizes.channels;
    std::int64_t c = 0;
    for (; c + std::int64_t{kReductionLanes} <= channels; c += kReductionLanes)
      for (std::size_t lane = 0; lane < kReductionLanes; ++lane) {
        const std::int64_t at = c + static_cast<std::int64_t>(lane);
        lanes[lane] += f(first + at, at);
      }
    for (std::size_t lane = 0; c < channels; ++c, ++lane) lanes[lane] += f(first + c, c);
  }
  return combine_lanes(lanes, std::plus<>());
}

/// Calls f(offset, c) for all elements of a group, as sum_group() does. f may write to an array that it
/// reads, but only at the same element.
template <class F>
void for_each_of_group(const GroupSizes& sizes, F f) {
  const std::int64_t channels = sizes.group_channels();
  for (std::int64_t pixel = 0; pixel < sizes.pixels; ++pixel)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) f(pixel * sizes.channels + c, c);
}

/// Calls f(index, first, channel) for all groups in parallel: the index of the group's statistics, the index
/// of its first element, and its first channel.
template <class F>
void for_each_group(const CpuStream& stream, const GroupSizes& sizes, F f) {
  const std::int64_t elements = sizes.pixels * sizes.group_channels();
  parallel_for(stream, sizes.samples * sizes.groups, item_grain(elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t index = begin; index < end; ++index) {
                   const std::int64_t channel = index % sizes.groups * sizes.group_channels();
                   f(index, index / sizes.groups * sizes.pixels * sizes.channels + channel, channel);
                 }
               });
}

/// A vector [C] of parameters, or of a constant if there is none.
template <class C>
class Parameters {
 public:
  Parameters(const ConstView& values, std::int64_t channels, C constant)
      : constants_(values.data != nullptr ? 0 : static_cast<std::size_t>(channels), constant),
        data_(values.data != nullptr ? values.as<C>() : constants_.data()) {}
  const C* data() const { return data_; }

 private:
  std::vector<C> constants_;
  const C* data_;
};

template <GradMode kMode, class T>
void data_gradient(const CpuStream& stream, const GroupSizes& sizes, const T* dy, const T* x,
                   const compute_t<T>* weight, const GroupMean<compute_t<T>>* means,
                   const compute_t<T>* inverse_std, T* dx) {
  using C = compute_t<T>;
  const double count = static_cast<double>(sizes.pixels * sizes.group_channels());
  for_each_group(stream, sizes, [&](std::int64_t index, std::int64_t first, std::int64_t channel) {
    const T* const dys = dy + first;
    const T* const xs = x + first;
    const C* const weights = weight + channel;
    const GroupMean<C> mean = means[index];
    const C factor = inverse_std[index];
    const auto gradient = [=](std::int64_t i, std::int64_t c) { return widened(dys[i]) * weights[c]; };
    const auto normalized = [=](std::int64_t i) { return mean.distance(widened(xs[i])) * factor; };
    const auto sum =
        sum_group(sizes, [=](std::int64_t i, std::int64_t c) { return static_cast<double>(gradient(i, c)); });
    const auto dot = sum_group(sizes, [=](std::int64_t i, std::int64_t c) {
      return static_cast<double>(gradient(i, c)) * static_cast<double>(normalized(i));
    });
    const C mean_gradient = static_cast<C>(sum / count), slope = static_cast<C>(dot / count);
    T* const out = dx + first;
    for_each_of_group(sizes, [=](std::int64_t i, std::int64_t c) {
      put<kMode>(out[i], factor * (gradient(i, c) - mean_gradient - normalized(i) * slope));
    });
  });
}

}  // namespace

void group_norm_forward(CpuStream& stream, ConstView x, ConstView weight, ConstView bias, double epsilon,
                        View y, View means, View inverse_std) {
  const GroupSizes sizes(x.shape, inverse_std.shape);
  const double count = static_cast<double>(sizes.pixels * sizes.group_channels());
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const Parameters<C> scale(weight, sizes.channels, 1), shift(bias, sizes.channels, 0);
    for_each_group(stream, sizes, [&](std::int64_t index, std::int64_t first, std::int64_t channel) {
      const T* const in = x.as<T>() + first;
      T* const out = y.as<T>() + first;
      const double center =
          sum_group(sizes,
                    [in](std::int64_t i, std::int64_t) { return static_cast<double>(widened(in[i])); }) /
          count;
      const double rounded = static_cast<C>(center);
      double rest = center - rounded;
      if constexpr (std::is_same_v<C, double>)  // the sum for `center` had to round
        rest =
            sum_group(sizes, [in, rounded](std::int64_t i, std::int64_t) { return in[i] - rounded; }) / count;
      const double squares = sum_group(sizes, [in, rounded, rest](std::int64_t i, std::int64_t) {
        const double distance = static_cast<double>(widened(in[i])) - rounded - rest;
        return distance * distance;
      });
      const GroupMean<C> mean{.rounded = static_cast<C>(rounded), .rest = static_cast<C>(rest)};
      const C factor = static_cast<C>(1 / std::sqrt(squares / count + epsilon));
      means.as<GroupMean<C>>()[index] = mean;
      inverse_std.as<C>()[index] = factor;
      const C* const scales = scale.data() + channel;
      const C* const shifts = shift.data() + channel;
      for_each_of_group(sizes, [=](std::int64_t i, std::int64_t c) {
        out[i] = stored<T>(mean.distance(widened(in[i])) * factor * scales[c] + shifts[c]);
      });
    });
  });
}

void group_norm_backward(CpuStream& stream, ConstView dy, ConstView x, ConstView weight, ConstView mean_pairs,
                         ConstView inverse_std, GradView dx, GradView dweight, GradView dbias) {
  const GroupSizes sizes(x.shape, inverse_std.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const auto* const means = mean_pairs.as<GroupMean<C>>();
    const C* const factors = inverse_std.as<C>();
    if (dx.wanted()) {
      const Parameters<C> scale(weight, sizes.channels, 1);
      const auto kernel = dx.mode == GradMode::accumulate ? data_gradient<GradMode::accumulate, T>
                                                          : data_gradient<GradMode::overwrite, T>;
      kernel(stream, sizes, dy.as<T>(), x.as<T>(), scale.data(), means, factors, dx.as<T>());
    }
    if (!dweight.wanted() && !dbias.wanted()) return;

    auto& scratch = stream.local<ChannelScratch<C>>();
    const ChannelMatrix matrix(Shape{sizes.samples * sizes.pixels, sizes.channels});
    const auto sum = [&](auto group_of) {
      sum_channels(
          stream, matrix, scratch, [&](std::int64_t row, std::int64_t c, double& first, double& second) {
            const std::int64_t at = row * sizes.channels + c;
            const std::int64_t group = row / sizes.pixels * sizes.groups + group_of(c);
            const double gradient = widened(dy.as<T>()[at]);
            first += gradient;
            second += gradient *
                      static_cast<double>(means[group].distance(widened(x.as<T>()[at])) * factors[group]);
          });
    };
    if (sizes.groups == 1) {
      sum([](std::int64_t) { return std::int64_t{0}; });
    } else {
      std::vector<std::int64_t> groups(static_cast<std::size_t>(sizes.channels));
      for (std::size_t c = 0; c < groups.size(); ++c)
        groups[c] = static_cast<std::int64_t>(c) / sizes.group_channels();
      sum([table = groups.data()](std::int64_t c) { return table[c]; });
    }
    const auto write = [&](const GradView& to, const std::vector<double>& sums) {
      if (!to.wanted()) return;
      map_range(
          to.mode, 0, sizes.channels, [](double u) { return u; }, to.as<C>(), sums.data());
    };
    write(dbias, scratch.first);
    write(dweight, scratch.second);
  });
}

}  // namespace convoy::kernels
