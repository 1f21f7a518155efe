// Helpers of the drivers of kernels (exercises/*/driver.cu): arrays of the GPU and their comparison. Plain CUDA, which cuemu
// and nvcc compile.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "case.h"

namespace lesson {

/// One run of the learner's kernel, and the arrays of the GPU that it uses.
class Case : public BasicCase {
 public:
  using BasicCase::BasicCase;
  ~Case() {
    for (void* array : arrays_) cudaFree(array);
  }

  /// Fills a device array with values(n, low, high), and returns them. Frees the array at the end of the case.
  template <class T>
  std::vector<float> fill(T* array, int n, int low = -8, int high = 8) {
    const std::vector<float> values = BasicCase::values(n, low, high);
    const std::vector<T> stored(values.begin(), values.end());
    cudaMemcpy(array, stored.data(), stored.size() * sizeof(T), cudaMemcpyHostToDevice);
    free_later(array);
    return values;
  }
  /// Fills a device array with NaN, which tells the elements that no thread has written. Frees it at the end of the case.
  void clear(float* array, int n) {
    cudaMemset(array, 0xff, static_cast<std::size_t>(n) * sizeof(float));
    free_later(array);
  }
  /// Frees an array at the end of the case.
  void free_later(void* array) { arrays_.push_back(array); }

  /// Waits for the kernel. Then compares n floats of a device array with expected(i) and reports the first that differs.
  /// `why(i, actual, text, size)` may write to `text`, of `size` characters, what a wrong value suggests.
  template <class Expected, class Why>
  void compare(const char* name, const float* array, int n, Expected expected, Why why) {
    finish_kernel();
    std::vector<float> actual(static_cast<std::size_t>(n));
    cudaMemcpy(actual.data(), array, actual.size() * sizeof(float), cudaMemcpyDeviceToHost);
    int wrong = 0, first = 0;
    for (int i = n; i-- > 0;)
      if (!(actual[static_cast<std::size_t>(i)] == static_cast<float>(expected(i)))) ++wrong, first = i;
    if (wrong == 0) return;
    const double value = actual[static_cast<std::size_t>(first)], right = expected(first);
    char found[40] = "was not written", reason[100] = "";
    if (!std::isnan(value)) std::snprintf(found, sizeof found, "is %g", value);
    why(first, static_cast<float>(value), reason, sizeof reason);
    fail("%s[%d] %s, expected %g%s%s; %d of %d %s wrong", name, first, found, right,
         *reason == '\0' ? "" : ": ", reason, wrong, n, n == 1 ? "element is" : "elements are");
  }
  template <class Expected>
  void compare(const char* name, const float* array, int n, Expected expected) {
    compare(name, array, n, expected, [](int, float, char*, std::size_t) {});
  }

  /// Waits for the kernel, and reports the error with which it ended, if any.
  void finish_kernel() {
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error != cudaSuccess) fail("the kernel failed: %s", cudaGetErrorString(error));
  }

 private:
  std::vector<void*> arrays_;
};

/// The driver's part: allocates, launches the learner's kernel, compares.
void run(Case& at);

}  // namespace lesson

int main(int count, char** arguments) {
  return lesson::run_cases<lesson::Case>(count, arguments, lesson::run);
}
