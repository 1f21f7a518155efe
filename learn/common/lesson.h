// Helpers of the drivers (exercises/*/driver.cu): the sizes of a case, its values, and the report to convoy-learn. Plain
// CUDA, which cuemu and nvcc compile.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace lesson {

/// One run of the learner's kernel: sizes, such as 37 rows and 65 columns, and the values of a seed.
class Case {
 public:
  /// `text` has the sizes, as "37x65". It is kept by the caller.
  Case(const char* text, unsigned seed) : text_(text), state_(seed * 2654435761u + 1) {
    for (const char* at = text; *at != '\0' && count_ < kMaxSizes; at += *at == 'x') {
      char* end = nullptr;
      sizes_[count_++] = static_cast<int>(std::strtol(at, &end, 10));
      at = end;
    }
  }
  ~Case() {
    for (void* array : arrays_) cudaFree(array);
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  /// Returns the size of an index.
  int size(int index) const { return index < count_ ? sizes_[index] : 0; }

  /// Fills a device array of n floats with integers from low to high but 0, and returns them. Sums of up to 2^20 of -8 to 8
  /// are exact in float, in every order, so results are compared without a tolerance. Frees the array at the end of the case.
  std::vector<float> fill(float* array, int n, int low = -8, int high = 8) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) {
      const bool has_zero = low < 0 && high > 0;
      const int number =
          low + static_cast<int>(next() % static_cast<unsigned>(high - low + (has_zero ? 0 : 1)));
      value = static_cast<float>(has_zero && number >= 0 ? number + 1 : number);
    }
    cudaMemcpy(array, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
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

  /// Reports why the result is wrong, in the format of printf, and ends the program.
  [[noreturn]] void fail(const char* format, ...) const {
    char text[300];
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    report("wrong", text);
    std::exit(1);
  }
  /// Appends a line {"driver": kind, "case": …, "text": …, "key": …} to the file of CONVOY_LEARN_REPORT, or prints it.
  void report(const char* kind, const char* text) const {
    const char* const path = std::getenv("CONVOY_LEARN_REPORT");
    if (path == nullptr) {
      std::printf("%s: %s %s\n", text_, kind, text);
      return;
    }
    std::FILE* const file = std::fopen(path, "a");
    if (file == nullptr) std::exit(2);
    std::fprintf(file, "{\"driver\": \"%s\", \"case\": \"%s\", \"text\": \"%s\", \"key\": \"%s\"}\n", kind,
                 text_, text, key());
    std::fclose(file);
  }
  /// The first line of the standard input, which convoy-learn writes: only lines with this key are its driver's.
  static const char* key() {
    static char text[40] = "";
    static bool is_read = false;
    if (!is_read && std::getenv("CONVOY_LEARN_REPORT") != nullptr &&
        std::fgets(text, sizeof text, stdin) != nullptr)
      text[std::strcspn(text, "\n")] = '\0';
    is_read = true;
    return text;
  }

 private:
  static constexpr int kMaxSizes = 4;

  std::uint32_t next() {  // a linear congruential generator; the upper bits are the better ones
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }

  const char* text_;
  std::uint32_t state_;
  int count_ = 0, sizes_[kMaxSizes] = {};
  std::vector<void*> arrays_;
};

/// The driver's part: allocates, launches the learner's kernel, compares.
void run(Case& at);

}  // namespace lesson

/// Arguments: a seed, and the sizes of each case.
int main(int count, char** arguments) {
  lesson::Case::key();
  for (int i = 2; i < count; ++i) {
    lesson::Case at(arguments[i], static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)));
    at.report("case", "");
    lesson::run(at);
    at.report("right", "");
  }
}
