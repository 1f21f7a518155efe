// cast and fill on the GPU (kernels/elementwise.h): conversion between any two element types.
#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From x) const {
    return converted<To>(x);
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

}  // namespace

void cast(CudaStream& stream, ConstView x, View y) {
  dispatch(kAllTypes, x.dtype, [&](auto from) {
    dispatch(kAllTypes, y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      cuda::launch_map(stream, y.numel(), Convert<To>{}, y.as<To>(), x.as<From>());
    });
  });
}

void fill(CudaStream& stream, double value, View y) {
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::launch_map(stream, y.numel(), Constant<T>{converted<T>(value)}, y.as<T>());
  });
}

}  // namespace convoy::kernels
