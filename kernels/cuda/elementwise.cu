// kernels/elementwise.h on the GPU: each kernel is a device function of one element, which `map` applies to
// the arrays.
#include "convoy/kernels/elementwise.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"

namespace convoy::kernels {
namespace {

struct WeightedSum {
  double a, b;
  template <class T>
  __device__ T operator()(T x, T y) const {
    return static_cast<T>(a) * x + static_cast<T>(b) * y;
  }
};

struct Multiply {
  template <class T>
  __device__ T operator()(T x, T y) const {
    return x * y;
  }
};

struct Multiple {
  double a;
  template <class T>
  __device__ T operator()(T x) const {
    return static_cast<T>(a) * x;
  }
};

struct AddScalar {
  double a;
  template <class T>
  __device__ T operator()(T x) const {
    return x + static_cast<T>(a);
  }
};

struct ReluForward {
  // This operand order propagates NaN: a ReLU must not hide a diverged training.
  template <class T>
  __device__ T operator()(T x) const {
    return T{0} > x ? T{0} : x;
  }
};

struct ReluBackward {
  template <class T>
  __device__ T operator()(T dy, T y) const {
    return y > T{0} ? dy : T{0};
  }
};

template <class T>
__device__ T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

struct GeluForward {
  template <class T>
  __device__ T operator()(T x) const {
    return cuda::gelu(x);
  }
};

struct GeluBackward {
  template <class T>
  __device__ T operator()(T dy, T x) const {
    return dy * cuda::gelu_derivative(x);
  }
};

struct SiluForward {
  template <class T>
  __device__ T operator()(T x) const {
    return x * sigmoid(x);
  }
};

struct SiluBackward {
  template <class T>
  __device__ T operator()(T dy, T x) const {
    const T s = sigmoid(x);
    return dy * s * (1 + x * (1 - s));
  }
};

struct HardswishForward {
  template <class T>
  __device__ T operator()(T x) const {
    const T positive = T{0} > x + 3 ? T{0} : x + 3;  // propagates NaN, as in ReluForward
    return x * (positive > T{6} ? T{6} : positive) * T(1.0 / 6);
  }
};

struct HardswishBackward {
  template <class T>
  __device__ T operator()(T dy, T x) const {
    const T slope = x * T(1.0 / 3) + T(0.5);
    return dy * (x <= T{-3} ? T{0} : x >= T{3} ? T{1} : slope);
  }
};

struct TanhForward {
  template <class T>
  __device__ T operator()(T x) const {
    return std::tanh(x);
  }
};

struct TanhBackward {
  template <class T>
  __device__ T operator()(T dy, T y) const {
    return dy * (1 - y * y);
  }
};

struct SigmoidForward {
  template <class T>
  __device__ T operator()(T x) const {
    return sigmoid(x);
  }
};

struct SigmoidBackward {
  template <class T>
  __device__ T operator()(T dy, T y) const {
    return dy * y * (1 - y);
  }
};

struct ExpForward {
  template <class T>
  __device__ T operator()(T x) const {
    return std::exp(x);
  }
};

struct LogForward {
  template <class T>
  __device__ T operator()(T x) const {
    return std::log(x);
  }
};

struct LogBackward {
  template <class T>
  __device__ T operator()(T dy, T x) const {
    return dy / x;
  }
};

struct SqrtForward {
  template <class T>
  __device__ T operator()(T x) const {
    return std::sqrt(x);
  }
};

struct SqrtBackward {
  template <class T>
  __device__ T operator()(T dy, T y) const {
    return dy / (2 * y);
  }
};

struct AbsForward {
  template <class T>
  __device__ T operator()(T x) const {
    return std::abs(x);
  }
};

struct AbsBackward {
  template <class T>
  __device__ T operator()(T dy, T x) const {
    return x > T{0} ? dy : x < T{0} ? -dy : T{0} * x;
  }
};

struct PowForward {
  double p;
  template <class T>
  __device__ T operator()(T x) const {
    return std::pow(x, static_cast<T>(p));
  }
};

struct PowBackward {
  double p;
  template <class T>
  __device__ T operator()(T dy, T x) const {
    return dy * static_cast<T>(p) * std::pow(x, static_cast<T>(p - 1));
  }
};

}  // namespace

void add(CudaStream& stream, ConstView x, ConstView y, View z, double a, double b) {
  cuda::map(stream, x, y, z, WeightedSum{a, b});
}

void mul(CudaStream& stream, ConstView x, ConstView y, GradView z) { cuda::map(stream, x, y, z, Multiply{}); }

void scale(CudaStream& stream, ConstView x, double a, GradView y) { cuda::map(stream, x, y, Multiple{a}); }

void add_scalar(CudaStream& stream, ConstView x, double a, View y) { cuda::map(stream, x, y, AddScalar{a}); }

void relu_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, ReluForward{}); }

void relu_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, ReluBackward{});
}

void gelu_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, GeluForward{}); }

void gelu_backward(CudaStream& stream, ConstView dy, ConstView x, GradView dx) {
  cuda::map(stream, dy, x, dx, GeluBackward{});
}

void silu_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, SiluForward{}); }

void silu_backward(CudaStream& stream, ConstView dy, ConstView x, GradView dx) {
  cuda::map(stream, dy, x, dx, SiluBackward{});
}

void hardswish_forward(CudaStream& stream, ConstView x, View y) {
  cuda::map(stream, x, y, HardswishForward{});
}

void hardswish_backward(CudaStream& stream, ConstView dy, ConstView x, GradView dx) {
  cuda::map(stream, dy, x, dx, HardswishBackward{});
}

void tanh_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, TanhForward{}); }

void tanh_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, TanhBackward{});
}

void sigmoid_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, SigmoidForward{}); }

void sigmoid_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, SigmoidBackward{});
}

void exp_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, ExpForward{}); }

void exp_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, Multiply{});
}

void log_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, LogForward{}); }

void log_backward(CudaStream& stream, ConstView dy, ConstView x, GradView dx) {
  cuda::map(stream, dy, x, dx, LogBackward{});
}

void sqrt_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, SqrtForward{}); }

void sqrt_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, SqrtBackward{});
}

void abs_forward(CudaStream& stream, ConstView x, View y) { cuda::map(stream, x, y, AbsForward{}); }

void abs_backward(CudaStream& stream, ConstView dy, ConstView x, GradView dx) {
  cuda::map(stream, dy, x, dx, AbsBackward{});
}

void pow_forward(CudaStream& stream, ConstView x, double p, View y) {
  cuda::map(stream, x, y, PowForward{p});
}

void pow_backward(CudaStream& stream, ConstView dy, ConstView x, double p, GradView dx) {
  cuda::map(stream, dy, x, dx, PowBackward{p});
}

}  // namespace convoy::kernels
