// What the drivers of all exercises share: the sizes of a case, its values, and the report to convoy-learn. C++ without CUDA.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace lesson {

/// One run of the learner's code: sizes, such as 37 rows and 65 columns, and the values of a seed.
class BasicCase {
 public:
  /// `text` has the sizes, as "37x65". It is kept by the caller.
  BasicCase(const char* text, unsigned seed) : text_(text), state_(seed * 2654435761u + 1) {
    for (const char* at = text; *at != '\0' && count_ < kMaxSizes; at += *at == 'x') {
      char* end = nullptr;
      sizes_[count_++] = static_cast<int>(std::strtol(at, &end, 10));
      at = end;
    }
  }
  BasicCase(const BasicCase&) = delete;
  BasicCase& operator=(const BasicCase&) = delete;

  /// Returns the size of an index.
  int size(int index) const { return index < count_ ? sizes_[index] : 0; }

  /// Returns n integers from low to high but 0. Sums of up to 2^20 of -8 to 8 are exact in float, in every order, so
  /// results are compared without a tolerance.
  template <class T = float>
  std::vector<T> values(int n, int low = -8, int high = 8) {
    std::vector<T> result(static_cast<std::size_t>(n));
    for (T& value : result) {
      const bool has_zero = low < 0 && high > 0;
      const int number =
          low + static_cast<int>(next() % static_cast<unsigned>(high - low + (has_zero ? 0 : 1)));
      value = static_cast<T>(has_zero && number >= 0 ? number + 1 : number);
    }
    return result;
  }
  std::uint32_t next() {  // a linear congruential generator; the upper bits are the better ones
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }

  /// Reports why the result is wrong, in the format of printf, and ends the program.
  [[noreturn]] __attribute__((format(printf, 2, 3))) void fail(const char* format, ...) const {
    std::va_list values;
    va_start(values, format);
    report_and_exit("wrong", format, values);
  }
  /// Reports a finding with its code, such as "CE401", and ends the program.
  [[noreturn]] __attribute__((format(printf, 3, 4))) void find(const char* code, const char* format,
                                                               ...) const {
    std::va_list values;
    va_start(values, format);
    report_and_exit(code, format, values);
  }
  /// Reports a number that exercise.toml limits, such as messages.
  void count(const char* what, double number) const {
    char text[100];
    std::snprintf(text, sizeof text, "%s %.17g", what, number);
    report("count", text);
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

  [[noreturn]] void report_and_exit(const char* kind, const char* format, std::va_list values) const {
    char text[400];
    std::vsnprintf(text, sizeof text, format, values);
    report(kind, text);
    std::exit(1);
  }

  const char* text_;
  std::uint32_t state_;
  int count_ = 0, sizes_[kMaxSizes] = {};
};

/// The main function of a driver. Arguments: a seed, and the sizes of each case.
template <class Case>
int run_cases(int count, char** arguments, void (*run)(Case&)) {
  BasicCase::key();
  for (int i = 2; i < count; ++i) {
    Case at(arguments[i], static_cast<unsigned>(std::strtoul(arguments[1], nullptr, 10)));
    at.report("case", "");
    run(at);
    at.report("right", "");
  }
  return 0;
}

}  // namespace lesson
