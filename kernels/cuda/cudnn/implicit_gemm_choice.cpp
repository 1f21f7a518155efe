#include "convoy/kernels/cuda/cudnn/implicit_gemm_choice.h"

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3_filter.h"

namespace convoy::kernels::implicit_gemm {

bool supports(const CudaStream& stream, const Conv2dProblem& problem) {
  if (problem.has_epilogue() || problem.alignment < kCudnnAlignment) return false;
  switch (problem.direction) {
    case Conv2dDirection::forward: return supports_forward(problem.dtype, problem.sizes) && has_wgmma(stream);
    case Conv2dDirection::backward_data: return false;
    case Conv2dDirection::backward_filter: return supports_backward_filter(problem.dtype, problem.sizes);
  }
  return false;
}

void enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays) {
  const ConvSizes& s = problem.sizes;
  const View x{arrays.x, {s.n, s.h, s.w, s.i}, problem.dtype},
      y{arrays.y, {s.n, s.oh, s.ow, s.o}, problem.dtype};
  const View filter{arrays.filter, {s.o, s.kh, s.kw, s.i}, problem.dtype};
  if (problem.direction == Conv2dDirection::forward) return forward(stream, x, filter, y);
  backward_filter(stream, y, x, GradView(filter, problem.mode), filter_ranges(s));
}

}  // namespace convoy::kernels::implicit_gemm
