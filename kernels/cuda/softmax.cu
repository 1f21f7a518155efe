// kernels/softmax.h on the GPU. A team of threads processes a row and reads it several times; after the first
// read, the cache serves rows of ordinary length.
#include "convoy/kernels/softmax.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/row_team.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t, cuda::first_largest, cuda::for_each_of_row, cuda::narrow, cuda::widen;

/// Computes softmax, or log-softmax if kLog.
template <bool kLog, class Team, class T>
__global__ void __launch_bounds__(Team::kBlock)
    softmax_kernel(std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  using C = compute_t<T>;
  const std::int64_t row = Team::row();
  if (row >= rows) return;  // true for all threads of a team
  const T* const from = x + row * columns;
  T* const to = y + row * columns;
  const C largest = first_largest<Team>(from, columns).value;
  C exps = 0;
  for_each_of_row<Team>(from, columns,
                        [&exps, largest](std::int64_t, C u) { exps += std::exp(u - largest); });
  exps = Team::reduce(exps, cuda::Sum{});
  const C factor = kLog ? std::log(exps) : 1 / exps;
  for_each_of_row<Team>(from, columns, [=](std::int64_t c, C u) {
    to[c] = narrow<T>(kLog ? u - largest - factor : std::exp(u - largest) * factor);
  });
}

/// Computes the gradient of softmax, or of log-softmax if kLog.
template <bool kLog, class Team, class T>
__global__ void __launch_bounds__(Team::kBlock)
    backward_kernel(std::int64_t rows, std::int64_t columns, GradMode mode, const T* dy, const T* y, T* dx) {
  using C = compute_t<T>;
  const std::int64_t row = Team::row();
  if (row >= rows) return;
  const T* const v = y + row * columns;
  T* const to = dx + row * columns;
  C sum = 0;
  for_each_of_row<Team>(dy + row * columns, columns,
                        [&sum, v](std::int64_t c, C d) { sum += kLog ? d : d * widen(v[c]); });
  sum = Team::reduce(sum, cuda::Sum{});
  for_each_of_row<Team>(dy + row * columns, columns, [=](std::int64_t c, C d) {
    const C out = widen(v[c]);
    const C gradient = kLog ? d - std::exp(out) * sum : out * (d - sum);
    to[c] = narrow<T>(mode == GradMode::accumulate ? widen(to[c]) + gradient : gradient);
  });
}

template <bool kLog>
void forward(CudaStream& stream, const ConstView& x, const View& y) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  if (rows == 0) return;
  dispatch(cuda::kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_team(columns, [&](auto team) {
      using Team = decltype(team);
      launch(stream, blocks_for(rows, Team::kRowsOfBlock), Team::kBlock, Team::kSharedBytes,
             softmax_kernel<kLog, Team, T>, rows, columns, x.as<T>(), y.as<T>());
    });
  });
}

template <bool kLog>
void backward(CudaStream& stream, const ConstView& dy, const ConstView& y, const GradView& dx) {
  const std::int64_t rows = y.shape[0], columns = y.shape[1];
  if (!dx.wanted() || rows == 0) return;
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_team(columns, [&](auto team) {
      using Team = decltype(team);
      launch(stream, blocks_for(rows, Team::kRowsOfBlock), Team::kBlock, Team::kSharedBytes,
             backward_kernel<kLog, Team, T>, rows, columns, dx.mode, dy.as<T>(), y.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace

void softmax(CudaStream& stream, ConstView x, View y) { forward<false>(stream, x, y); }

void softmax_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  backward<false>(stream, dy, y, dx);
}

void log_softmax(CudaStream& stream, ConstView x, View y) { forward<true>(stream, x, y); }

void log_softmax_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  backward<true>(stream, dy, y, dx);
}

}  // namespace convoy::kernels
