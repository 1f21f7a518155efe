#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int rows = at.size(0), columns = at.size(1);
  float *x, *maximum, *sum;
  cudaMalloc(&x, rows * columns * sizeof(float));
  cudaMalloc(&maximum, rows * sizeof(float));
  cudaMalloc(&sum, rows * sizeof(float));
  const std::vector<float> host_x = at.fill(x, rows * columns, -6, 6);  // so that all sums are exact
  at.clear(maximum, rows);
  at.clear(sum, rows);
  row_statistics<<<rows, 32>>>(x, maximum, sum, columns);
  const auto largest = [&](int row) {
    float result = host_x[row * columns];
    for (int i = 1; i < columns; ++i) result = std::fmax(result, host_x[row * columns + i]);
    return result;
  };
  at.compare("maximum", maximum, rows, largest);
  at.compare(
      "sum", sum, rows,
      [&](int row) {
        float result = 0;
        for (int i = 0; i < columns; ++i) result += std::exp2(host_x[row * columns + i] - largest(row));
        return result;
      },
      [](int, float actual, char* text, std::size_t size) {
        if (std::isnan(actual)) std::snprintf(text, size, "or it is NaN, as -INFINITY - -INFINITY is");
      });
}
