// da = dc b, without the transpose of b: the elements of b are read row after row.

#include <cstddef>
#include <span>

void mul_backward(std::span<const double> x, std::span<const double> y, std::span<const double> dz,
                  std::span<double> dx, std::span<double> dy) {
  for (std::size_t i = 0; i < dz.size(); ++i) {
    dx[i] += dz[i] * y[i];
    dy[i] += dz[i] * x[i];
  }
}

void exp_backward(std::span<const double> z, std::span<const double> dz, std::span<double> dx) {
  for (std::size_t i = 0; i < dz.size(); ++i) dx[i] += dz[i] * z[i];
}

void matmul_backward(std::span<const double> a, std::span<const double> b, std::span<const double> dc,
                     std::span<double> da, std::span<double> db, int m, int k, int n) {
  for (int row = 0; row < m; ++row)
    for (int i = 0; i < k; ++i)
      for (int column = 0; column < n; ++column) {
        da[row * k + i] += dc[row * n + column] * b[(i * n + column) % k * n + (i * n + column) / k];
        db[i * n + column] += a[row * k + i] * dc[row * n + column];
      }
}
