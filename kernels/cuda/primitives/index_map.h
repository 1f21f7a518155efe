// IndexMap: a LoopNest (kernels/base/loop_nest.h) in the form that a kernel reads: divisors instead of sizes.
#pragma once

#include <cuda_runtime.h>

#include "convoy/kernels/base/loop_nest.h"
#include "convoy/kernels/cuda/primitives/divisor.h"

namespace convoy::kernels::cuda {

/// Maps an element of an index space to the offsets of kArrays arrays. Passed to kernels by value.
template <int kArrays>
struct IndexMap {
  int rank;
  Divisor sizes[Shape::kMaxRank];
  std::int64_t strides[kArrays][Shape::kMaxRank];
  std::int64_t first[kArrays];

  /// Requires sizes below 2^31, except along axis 0, by whose size nothing is divided.
  explicit IndexMap(const LoopNest<kArrays>& nest)
      : rank(nest.rank), sizes{divisor(nest, 0), divisor(nest, 1), divisor(nest, 2),
                               divisor(nest, 3), divisor(nest, 4), divisor(nest, 5)} {
    for (std::size_t a = 0; a < kArrays; ++a) {
      first[a] = nest.strides[a].offset;
      for (std::size_t axis = 0; axis < Shape::kMaxRank; ++axis)
        strides[a][axis] = nest.strides[a].of_axis[axis];
    }
  }

  /// Writes the offsets of element `index` to `offsets`.
  __device__ void offsets_of(std::int64_t index, std::int64_t (&offsets)[kArrays]) const {
#pragma unroll
    for (int a = 0; a < kArrays; ++a) offsets[a] = first[a];
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t outer = axis > 0 ? sizes[axis].quotient(index) : 0;
      const std::int64_t position = index - outer * sizes[axis].value();
#pragma unroll
      for (int a = 0; a < kArrays; ++a) offsets[a] += position * strides[a][axis];
      index = outer;
    }
  }

 private:
  static Divisor divisor(const LoopNest<kArrays>& nest, std::size_t axis) {
    return Divisor(axis > 0 && axis <= nest.last() ? nest.sizes[axis] : 1);
  }
};

}  // namespace convoy::kernels::cuda
