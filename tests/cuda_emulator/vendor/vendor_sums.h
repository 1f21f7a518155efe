// The dot products of convolutions and GEMMs, as plain loops. Compiled without sanitizers, for speed: the
// arrays are dense, belong to the emulator, and are filled and read by instrumented code.
#pragma once

#include <cstddef>

namespace convoy::emulator {

/// The order in which the terms of one element are added.
struct Summation {
  int parts = 1;            // number of consecutive parts that are summed separately, then added
  bool descending = false;  // from the last term of a part to its first
};

/// The sums of many elements. Their parts are stored in `partials` [parts, elements], which the caller
/// provides.
template <class T>
class Sums {
 public:
  Sums(Summation order, std::size_t elements, T* partials)
      : order_(order), elements_(elements), partials_(partials) {}

  /// Computes element `at` as the sum of a[i] b[i] for i < n.
  void set(std::size_t at, const T* a, const T* b, std::size_t n);
  /// Writes all elements: the sums of their parts, added in order.
  void finish(T* elements) const;

 private:
  Summation order_;
  std::size_t elements_;
  T* partials_;
};

/// The shape of a convolution with images [n, h, w, c], filters [k, r, s, c] and outputs [n, oh, ow, k], all
/// dense.
struct ConvolutionShape {
  int n, h, w, c;
  int k, r, s;
  int oh, ow;
  int stride_h, stride_w;
  int padding_h, padding_w;  // before the first row and column
  int dilation_h, dilation_w;

  std::size_t image_elements() const;
  std::size_t filter_elements() const;
  std::size_t output_elements() const;
};

// Compute a convolution. The last argument receives one sum per output element.
void convolve_forward(const ConvolutionShape& shape, const float* x, const float* w, Sums<float> y);
void convolve_backward_data(const ConvolutionShape& shape, const float* dy, const float* w, Sums<float> dx);
void convolve_backward_filter(const ConvolutionShape& shape, const float* dy, const float* x, Sums<float> dw);

}  // namespace convoy::emulator
