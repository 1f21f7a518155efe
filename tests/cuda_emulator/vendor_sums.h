// The sums of products that convolutions and matrix products are made of, by plain loops. Compiled without
// sanitizers, for speed: they see dense arrays of the emulator's own, filled and emptied by checked code.
#pragma once

#include <cstddef>

namespace convoy::emulator {

/// In which order an element's products are added.
struct Summation {
  int parts = 1;            // consecutive ones, summed apart and then together
  bool descending = false;  // from the last product of a part to its first
};

/// Sums of many elements. Their parts lie in `partials`, [parts, elements], which the caller provides.
template <class T>
class Sums {
 public:
  Sums(Summation order, std::size_t elements, T* partials)
      : order_(order), elements_(elements), partials_(partials) {}

  /// Element `at` is the sum of n products a[i] b[i].
  void set(std::size_t at, const T* a, const T* b, std::size_t n);
  /// All elements; the parts of each added in their order.
  void finish(T* elements) const;

 private:
  Summation order_;
  std::size_t elements_;
  T* partials_;
};

/// Of a convolution with images [n, h, w, c], filters [k, r, s, c] and outputs [n, oh, ow, k], all dense.
struct ConvolutionShape {
  int n, h, w, c;
  int k, r, s;
  int oh, ow;
  int stride_h, stride_w;
  int padding_h, padding_w;  // in front
  int dilation_h, dilation_w;

  std::size_t image_elements() const;
  std::size_t filter_elements() const;
  std::size_t output_elements() const;
};

// Each result has a sum for every element.
void convolve_forward(const ConvolutionShape& shape, const float* x, const float* w, Sums<float> y);
void convolve_backward_data(const ConvolutionShape& shape, const float* dy, const float* w, Sums<float> dx);
void convolve_backward_filter(const ConvolutionShape& shape, const float* dy, const float* x, Sums<float> dw);

}  // namespace convoy::emulator
