// A batch norm of a batch in parts, one after the other on one device: what engine/ops and ranks do between
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/batchnorm_arrays.h"

namespace convoy::testing {

/// The parts end at these rows, the last one at norm.rows(); equal neighbours make a part without rows.
using PartEnds = std::vector<std::int64_t>;

namespace detail {

/// Rows of a matrix on a device.
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

/// Calls f(part, rows).
template <class T, class F>
void for_each_part(const PartEnds& ends, const F& f) {
  for (std::size_t part = 0; part < ends.size(); ++part)
    f(static_cast<std::int64_t>(part), Rows<T>(part == 0 ? 0 : ends[part - 1], ends[part]));
}

/// What one part gives of [parts, 1 + 2C].
inline View vector_of(const DeviceArray<double>& all, std::int64_t part) {
  const Shape& shape = all.view().shape;
  return {all.view().as<double>() + part * shape[1], {shape[1]}, DType::f64};
}

}  // namespace detail

/// In the place of forward(), in training. Every part keeps statistics of its own, which must be alike.
template <class T>
void forward_in_parts(const Device& device, Norm<T>& norm, const Fusion& fusion, const PartEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> x(device, norm.x), residual(device, norm.residual), y(device, norm.y);
  const DeviceArray<C> gamma(device, norm.gamma), beta(device, norm.beta);
  const DeviceArray<double> moments(device,
                                    Shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()}));
  const Norm<T> before = norm;
  on(device.stream(), [&](auto& s) {
    detail::for_each_part<T>(ends, [&](std::int64_t part, const auto& rows) {
      batch_norm_moments(s, rows.of(x), detail::vector_of(moments, part));
    });
    detail::for_each_part<T>(ends, [&](std::int64_t part, const auto& rows) {
      const DeviceArray<C> mean(device, before.mean), inverse_std(device, before.inverse_std),
          running_mean(device, before.running_mean), running_var(device, before.running_var);
      const ConstView added = fusion.residual ? ConstView(rows.of(residual)) : ConstView();
      batch_norm_forward_of_part(s, rows.of(x), gamma.view(), beta.view(), added, moments.view(), rows.of(y),
                                 mean.view(), inverse_std.view(), running_mean.view(), running_var.view(),
                                 {.relu = fusion.relu});
      const auto keep = [&](Array<C>& to, const DeviceArray<C>& from) {
        if (part > 0) expect_same_bits(from.values(), to);
        to = from.values();
      };
      keep(norm.mean, mean), keep(norm.inverse_std, inverse_std);
      keep(norm.running_mean, running_mean), keep(norm.running_var, running_var);
    });
  });
  norm.y = y.values();
}

/// In the place of backward(), of training; dgamma and dbeta are added up over the parts.
template <class T>
void backward_in_parts(const Device& device, Norm<T>& norm, const Fusion& fusion, Mode mode,
                       const PartEnds& ends) {
  using C = ComputeType<T>;
  const DeviceArray<T> dy(device, norm.dy), x(device, norm.x), y(device, norm.y), dx(device, norm.dx),
      dresidual(device, norm.dresidual);
  const DeviceArray<C> gamma(device, norm.gamma), mean(device, norm.mean),
      inverse_std(device, norm.inverse_std), dgamma(device, norm.dgamma), dbeta(device, norm.dbeta);
  const Shape shape({static_cast<std::int64_t>(ends.size()), 1 + 2 * norm.channels()});
  const DeviceArray<double> sums(device, shape);
  const BatchNormOptions options{.relu = fusion.relu};
  const auto result = [&](const auto& rows) { return fusion.relu ? ConstView(rows.of(y)) : ConstView(); };
  on(device.stream(), [&](auto& s) {
    detail::for_each_part<T>(ends, [&](std::int64_t part, const auto& rows) {
      const Mode part_mode = part == 0 ? mode : Mode::add;
      batch_norm_gradient_sums(s, rows.of(dy), rows.of(x), result(rows), mean.view(), inverse_std.view(),
                               detail::vector_of(sums, part), dgamma.grad(part_mode), dbeta.grad(part_mode),
                               options);
    });
    const Array<double> of_parts = sums.values();
    Array<double> total(Shape({shape[1]}));
    for (std::size_t e = 0; e < of_parts.size(); ++e) total[e % total.size()] += of_parts[e];
    const DeviceArray<double> all(device, total);
    detail::for_each_part<T>(ends, [&](std::int64_t, const auto& rows) {
      batch_norm_backward_of_part(s, rows.of(dy), rows.of(x), result(rows), gamma.view(), mean.view(),
                                  inverse_std.view(), all.view(), GradView(rows.of(dx), mode),
                                  GradView(rows.of(dresidual), mode), options);
    });
  });
  norm.dx = dx.values();
  norm.dresidual = dresidual.values();
  norm.dgamma = dgamma.values();
  norm.dbeta = dbeta.values();
}

}  // namespace convoy::testing
