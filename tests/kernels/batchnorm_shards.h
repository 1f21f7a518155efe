// Synchronized batch norm of a batch in shards, computed one after the other on one device. It does what
// engine/ops and the ranks do together.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/batchnorm_arrays.h"

namespace convoy::testing {

/// The rows at which the shards end. The last one is norm.rows(). Two equal consecutive ends make an empty
/// shard.
using ShardEnds = std::vector<std::int64_t>;

namespace detail {

/// A range of rows of a matrix on a device.
template <class T>
class Rows {
 public:
  Rows(std::int64_t begin, std::int64_t end) : begin_(begin), end_(end) {}
  View of(const DeviceArray<T>& array) const {
    const View all = array.view();
    const std::int64_t channels = all.shape[1];
    T* const data = all.as<T>();
    return {data != nullptr ? data + begin_ * channels : nullptr, {end_ - begin_, channels}, all.dtype};
  }

 private:
  std::int64_t begin_, end_;
};

/// Calls f(shard, rows) for each shard.
template <class T, class F>
void for_each_shard(const ShardEnds& ends, const F& f) {
  for (std::size_t shard = 0; shard < ends.size(); ++shard)
    f(static_cast<std::int64_t>(shard), Rows<T>(shard == 0 ? 0 : ends[shard - 1], ends[shard]));
}

/// Returns the row of one shard in a matrix [shards, 1 + 2C].
inline View vector_of(const DeviceArray<double>& all, std::int64_t shard) {
  const Shape& shape = all.view().shape;
  return {all.view().as<double>() + shard * shape[1], {shape[1]}, DType::f64};
}

}  // namespace detail

/// Does the same as forward() in training, in shards. Expects equal statistics from every shard.
template <class T>
void forward_in_shards(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion,
                       const ShardEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> x(device, norm.x), residual(device, norm.residual), y(device, norm.y);
  const DeviceArray<C> gamma(device, norm.gamma), beta(device, norm.beta);
  const DeviceArray<double> moments(device,
                                    Shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()}));
  const Norm<T> before = norm;
  on(device.stream(), [&](auto& s) {
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      kernels::sync_batch_norm_moments(s, rows.of(x), detail::vector_of(moments, shard));
    });
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      const DeviceArray<C> mean(device, before.mean), inverse_std(device, before.inverse_std),
          coefficients(device, before.coefficients), running_mean(device, before.running_mean),
          running_var(device, before.running_var);
      const ConstView added = fusion.residual ? ConstView(rows.of(residual)) : ConstView();
      const kernels::BatchNorm layer{gamma.view(),
                                     beta.view(),
                                     running_mean.view(),
                                     running_var.view(),
                                     {.activation = fusion.activation()}};
      const kernels::SavedStatistics saved{mean.view(), inverse_std.view(), coefficients.view()};
      kernels::sync_batch_norm_statistics(s, layer, moments.view(), saved);
      kernels::batch_norm_normalize(s, layer, rows.of(x), added, saved, rows.of(y));
      const auto keep = [&](Array<C>& to, const DeviceArray<C>& from) {
        if (shard > 0) expect_same_bits(from.values(), to);
        to = from.values();
      };
      keep(norm.mean, mean), keep(norm.inverse_std, inverse_std), keep(norm.coefficients, coefficients);
      keep(norm.running_mean, running_mean), keep(norm.running_var, running_var);
    });
  });
  norm.y = y.values();
}

/// Does the same as backward() in training, in shards. dgamma and dbeta are summed over the shards.
template <class T>
void backward_in_shards(const DeviceContext& device, Norm<T>& norm, const Fusion& fusion, GradMode mode,
                        const ShardEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> dy(device, norm.dy), x(device, norm.x), y(device, norm.y), dx(device, norm.dx),
      dresidual(device, norm.dresidual);
  const DeviceArray<C> gamma(device, norm.gamma), mean(device, norm.mean),
      inverse_std(device, norm.inverse_std), coefficients(device, norm.coefficients),
      dgamma(device, norm.dgamma), dbeta(device, norm.dbeta);
  const Shape shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()});
  const DeviceArray<double> sums(device, shape);
  const kernels::BatchNorm layer{gamma.view(), {}, {}, {}, {.activation = fusion.activation()}};
  const kernels::SavedStatistics saved{mean.view(), inverse_std.view(),
                                       fusion.residual ? View() : coefficients.view()};
  const auto arrays_of = [&](const auto& rows) -> kernels::BackwardArrays {
    return {rows.of(dy), rows.of(x), fusion.relu ? rows.of(y) : View()};
  };
  on(device.stream(), [&](auto& s) {
    detail::for_each_shard<T>(ends, [&](std::int64_t shard, const auto& rows) {
      const GradMode shard_mode = shard == 0 ? mode : GradMode::accumulate;
      kernels::sync_batch_norm_sums(s, layer, arrays_of(rows), saved, detail::vector_of(sums, shard),
                                    {.gamma = dgamma.grad(shard_mode), .beta = dbeta.grad(shard_mode)});
    });
    const Array<double> of_shards = sums.values();
    Array<double> total(Shape({shape[1]}));
    for (std::size_t e = 0; e < of_shards.size(); ++e) total[e % total.size()] += of_shards[e];
    const DeviceArray<double> all(device, total);
    detail::for_each_shard<T>(ends, [&](std::int64_t, const auto& rows) {
      kernels::sync_batch_norm_backward(
          s, layer, arrays_of(rows), saved, all.view(),
          {.x = GradView(rows.of(dx), mode), .residual = GradView(rows.of(dresidual), mode)});
    });
  });
  norm.dx = dx.values();
  norm.dresidual = dresidual.values();
  norm.dgamma = dgamma.values();
  norm.dbeta = dbeta.values();
}

}  // namespace convoy::testing
