#include "tests/cuda_emulator/vendor/vendor_sums.h"

#include <initializer_list>
#include <vector>

namespace convoy::emulator {
namespace {

std::size_t product(std::initializer_list<int> sizes) {
  std::size_t result = 1;
  for (const int size : sizes) result *= static_cast<std::size_t>(size);
  return result;
}

/// Transposes [rows, columns] to [columns, rows].
std::vector<float> transposed(const float* in, std::size_t rows, std::size_t columns) {
  std::vector<float> out(rows * columns);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      out[column * rows + row] = in[row * columns + column];
  return out;
}

/// An array [n, h, w, c].
struct Image {
  const float* data;
  int h, w, c;

  /// Returns the channels of a pixel, or null in the padding.
  const float* pixel(int n, int row, int column) const {
    if (row < 0 || row >= h || column < 0 || column >= w) return nullptr;
    const int pixels = (n * h + row) * w + column;
    return data + product({pixels, c});
  }
  /// Copies the channels of a pixel, or zeros in the padding, to `to`. Returns the end of the copy.
  float* copy(int n, int row, int column, float* to) const {
    const float* const from = pixel(n, row, column);
    for (int i = 0; i < c; ++i) to[i] = from != nullptr ? from[i] : 0;
    return to + c;
  }
};

/// Returns the row or column of the image at tap `tap` of output `at`.
int image_position(int at, int tap, int stride, int padding, int dilation) {
  return at * stride - padding + tap * dilation;
}

/// Returns the output whose tap `tap` is at row or column `at` of the image, or -1 if there is none.
int output_position(int at, int tap, int stride, int padding, int dilation) {
  const int scaled = at + padding - tap * dilation;
  return scaled >= 0 && scaled % stride == 0 ? scaled / stride : -1;
}

}  // namespace

template <class T>
void Sums<T>::set(std::size_t at, const T* a, const T* b, std::size_t n) {
  const auto parts = static_cast<std::size_t>(order_.parts);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = n * part / parts, end = n * (part + 1) / parts;
    T sum = 0;
    if (order_.descending)
      for (std::size_t i = end; i-- > begin;) sum += a[i] * b[i];
    else
      for (std::size_t i = begin; i < end; ++i) sum += a[i] * b[i];
    partials_[part * elements_ + at] = sum;
  }
}

template <class T>
void Sums<T>::finish(T* elements) const {
  for (std::size_t at = 0; at < elements_; ++at) {
    T sum = partials_[at];
    for (std::size_t part = 1; part < static_cast<std::size_t>(order_.parts); ++part)
      sum += partials_[part * elements_ + at];
    elements[at] = sum;
  }
}

template class Sums<float>;
template class Sums<double>;

std::size_t ConvolutionShape::image_elements() const { return product({n, h, w, c}); }
std::size_t ConvolutionShape::filter_elements() const { return product({k, r, s, c}); }
std::size_t ConvolutionShape::output_elements() const { return product({n, oh, ow, k}); }

void convolve_forward(const ConvolutionShape& shape, const float* x, const float* w, Sums<float> y) {
  const Image image{x, shape.h, shape.w, shape.c};
  std::vector<float> window(product({shape.r, shape.s, shape.c}));
  std::size_t at = 0;
  for (int n = 0; n < shape.n; ++n) {
    for (int oh = 0; oh < shape.oh; ++oh) {
      for (int ow = 0; ow < shape.ow; ++ow) {
        float* to = window.data();
        for (int r = 0; r < shape.r; ++r) {
          const int row = image_position(oh, r, shape.stride_h, shape.padding_h, shape.dilation_h);
          for (int s = 0; s < shape.s; ++s) {
            const int column = image_position(ow, s, shape.stride_w, shape.padding_w, shape.dilation_w);
            to = image.copy(n, row, column, to);
          }
        }
        for (int k = 0; k < shape.k; ++k, ++at)
          y.set(at, window.data(), w + static_cast<std::size_t>(k) * window.size(), window.size());
      }
    }
  }
}

void convolve_backward_data(const ConvolutionShape& shape, const float* dy, const float* w, Sums<float> dx) {
  const Image gradient{dy, shape.oh, shape.ow, shape.k};
  // [c, r, s, k]
  const std::size_t taps = product({shape.r, shape.s});
  std::vector<float> filters(shape.filter_elements());
  for (std::size_t k = 0; k < product({shape.k}); ++k)
    for (std::size_t tap = 0; tap < taps; ++tap)
      for (std::size_t c = 0; c < product({shape.c}); ++c)
        filters[(c * taps + tap) * product({shape.k}) + k] = w[(k * taps + tap) * product({shape.c}) + c];
  std::vector<float> window(taps * product({shape.k}));
  std::size_t at = 0;
  for (int n = 0; n < shape.n; ++n) {
    for (int h = 0; h < shape.h; ++h) {
      for (int column = 0; column < shape.w; ++column) {
        float* to = window.data();
        for (int r = 0; r < shape.r; ++r) {
          const int oh = output_position(h, r, shape.stride_h, shape.padding_h, shape.dilation_h);
          for (int s = 0; s < shape.s; ++s) {
            const int ow = output_position(column, s, shape.stride_w, shape.padding_w, shape.dilation_w);
            to = gradient.copy(n, oh, ow, to);
          }
        }
        for (int c = 0; c < shape.c; ++c, ++at)
          dx.set(at, window.data(), filters.data() + static_cast<std::size_t>(c) * window.size(),
                 window.size());
      }
    }
  }
}

void convolve_backward_filter(const ConvolutionShape& shape, const float* dy, const float* x,
                              Sums<float> dw) {
  const Image image{x, shape.h, shape.w, shape.c};
  const std::size_t outputs = product({shape.n, shape.oh, shape.ow}), channels = product({shape.c});
  const std::vector<float> gradients = transposed(dy, outputs, product({shape.k}));
  std::vector<float> pixels(outputs * channels);
  for (int r = 0; r < shape.r; ++r) {
    for (int s = 0; s < shape.s; ++s) {
      float* to = pixels.data();
      for (int n = 0; n < shape.n; ++n)
        for (int oh = 0; oh < shape.oh; ++oh)
          for (int ow = 0; ow < shape.ow; ++ow)
            to = image.copy(n, image_position(oh, r, shape.stride_h, shape.padding_h, shape.dilation_h),
                            image_position(ow, s, shape.stride_w, shape.padding_w, shape.dilation_w), to);
      const std::vector<float> by_channel = transposed(pixels.data(), outputs, channels);
      for (std::size_t k = 0; k < product({shape.k}); ++k)
        for (std::size_t c = 0; c < channels; ++c) {
          const std::size_t tap =
              (k * product({shape.r}) + static_cast<std::size_t>(r)) * product({shape.s}) +
              static_cast<std::size_t>(s);
          dw.set(tap * channels + c, by_channel.data() + c * outputs, gradients.data() + k * outputs,
                 outputs);
        }
    }
  }
}

}  // namespace convoy::emulator
