// kernels/losses.h on the GPU. Each block sums the losses of a piece of the arrays; one more block adds the
// sums of the pieces. Sums are f64.
#include "convoy/kernels/losses.h"

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/shared/element_losses.h"

namespace convoy::kernels {
namespace {

using cuda::BlockPartials, cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::widen;

constexpr int kLossBlock = 256;
constexpr int kLossPiece =
    8192;  // elements per block: for floats, 8 loads of 16 bytes of both arrays per thread
constexpr int kFinishBlock = 512;

// Functions of elements for `map`.

template <class Loss>
struct Value {
  template <class C>
  __device__ C operator()(C x, C t) const {
    return Loss::loss(x, t);
  }
};

/// The derivative of a loss by x or by the target, which is chosen at run time: the same branch for all threads,
/// where a template argument would double the number of kernels.
template <class Loss, class C>
__device__ C derivative(bool by_target, C x, C t) {
  return by_target ? Loss::by_target(x, t) : Loss::by_x(x, t);
}

/// A gradient for a dy with one element, which every thread reads.
template <class Loss, class T>
struct ScalarGradient {
  const T* dy;
  compute_t<T> factor;
  bool by_target;
  __device__ compute_t<T> operator()(compute_t<T> x, compute_t<T> t) const {
    return widen(*dy) * factor * derivative<Loss>(by_target, x, t);
  }
};

/// A gradient for a dy of the shape of x.
template <class Loss, class T>
struct ElementGradient {
  compute_t<T> factor;
  bool by_target;
  __device__ compute_t<T> operator()(compute_t<T> dy, compute_t<T> x, compute_t<T> t) const {
    return dy * factor * derivative<Loss>(by_target, x, t);
  }
};

/// Enqueues out[i] = f(in[i]…), or +=.
template <class T, class F, class... X>
void map_gradient(CudaStream& stream, const GradView& out, F f, const X*... in) {
  T* const to = out.as<T>();
  if (out.mode == GradMode::overwrite) {
    cuda::launch_map(stream, out.numel(), cuda::Overwrite<T, F>{f}, to, in...);
  } else {
    cuda::launch_map(stream, out.numel(), cuda::Accumulate<T, F>{f}, to, static_cast<const T*>(to), in...);
  }
}

template <class Loss>
void gradient(CudaStream& stream, bool by_target, const ConstView& dy, double factor, const ConstView& x,
              const ConstView& target, const GradView& out) {
  if (!out.wanted()) return;
  dispatch(kGpuTypes, out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto scale = static_cast<compute_t<T>>(factor);
    if (dy.numel() == 1) {
      map_gradient<T>(stream, out, ScalarGradient<Loss, T>{dy.as<T>(), scale, by_target}, x.as<T>(),
                      target.as<T>());
    } else {
      map_gradient<T>(stream, out, ElementGradient<Loss, T>{scale, by_target}, dy.as<T>(), x.as<T>(),
                      target.as<T>());
    }
  });
}

/// Computes partials [blocks]: the sum of the losses of each piece. The loads of a thread are adjacent to
/// those of its neighbours.
template <class Loss, class T>
__global__ void __launch_bounds__(kLossBlock)
    loss_sum_kernel(std::int64_t n, bool is_aligned, const T* x, const T* target, double* partials) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kLossPiece;
  const int count = static_cast<int>(n - begin < kLossPiece ? n - begin : kLossPiece);
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = count / kWidth;
  cuda::CompensatedSum<compute_t<T>> losses;
#pragma unroll 4
  for (int pack = thread; pack < packs; pack += kLossBlock) {
    const auto u = cuda::load_pack<kWidth>(x + begin + pack * kWidth, is_aligned);
    const auto t = cuda::load_pack<kWidth>(target + begin + pack * kWidth, is_aligned);
    for (int i = 0; i < kWidth; ++i) losses.add(Loss::loss(widen(u.values[i]), widen(t.values[i])));
  }
  for (int i = packs * kWidth + thread; i < count; i += kLossBlock)
    losses.add(Loss::loss(widen(x[begin + i]), widen(target[begin + i])));
  const double sum = cuda::block_reduce<kLossBlock>(losses.value(), cuda::Sum{},
                                                    cuda::shared_memory<BlockPartials<double, kLossBlock>>());
  if (thread == 0) partials[blockIdx.x] = sum;
}

/// Computes y = factor times the sum of `count` partial sums. One block.
template <class T>
__global__ void __launch_bounds__(kFinishBlock)
    loss_finish_kernel(int count, const double* partials, double factor, T* y) {
  const double sum = cuda::block_sum<kFinishBlock>(
      partials, count, [](double x, auto& all) { all.add(x); },
      cuda::shared_memory<BlockPartials<double, kFinishBlock>>());
  if (threadIdx.x == 0) *y = narrow<T>(static_cast<compute_t<T>>(factor * sum));
}

}  // namespace

void element_loss(CudaStream& stream, ElementLoss loss, ConstView x, ConstView target, View y) {
  dispatch_loss<cuda::GpuMath>(
      loss, [&](auto functions) { cuda::map(stream, x, target, y, Value<decltype(functions)>{}); });
}

void element_loss_sum(CudaStream& stream, ElementLoss loss, ConstView x, ConstView target, double factor,
                      View y) {
  const unsigned blocks = blocks_for(x.numel(), kLossPiece);
  const cuda::Scratch partials(stream, blocks * sizeof(double));
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_loss<cuda::GpuMath>(loss, [&](auto functions) {
      if (blocks == 0) return;
      const bool is_aligned = cuda::is_aligned(x.data) && cuda::is_aligned(target.data);
      launch(stream, blocks, kLossBlock, sizeof(BlockPartials<double, kLossBlock>),
             loss_sum_kernel<decltype(functions), T>, x.numel(), is_aligned, x.as<T>(), target.as<T>(),
             partials.as<double>());
    });
    launch(stream, 1, kFinishBlock, sizeof(BlockPartials<double, kFinishBlock>), loss_finish_kernel<T>,
           static_cast<int>(blocks), partials.as<double>(), factor, y.as<T>());
  });
}

void element_loss_backward(CudaStream& stream, ElementLoss loss, ConstView dy, double factor, ConstView x,
                           ConstView target, GradView dx, GradView dtarget) {
  dispatch_loss<cuda::GpuMath>(loss, [&](auto functions) {
    using Loss = decltype(functions);
    gradient<Loss>(stream, false, dy, factor, x, target, dx);
    gradient<Loss>(stream, true, dy, factor, x, target, dtarget);
  });
}

}  // namespace convoy::kernels
