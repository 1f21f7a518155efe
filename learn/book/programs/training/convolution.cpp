// A convolution with 3 x 3 taps in four ways. Counts multiply-adds and the floats of buffers, and measures
// the rounding errors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../../common/philox.h"

const int kSide = 32;  // rows and columns of the image

struct Cost {
  long multiply_adds = 0, floats = 0;  // of buffers
};

// x[row][column][channel], 0 outside of the image.
float at(const std::vector<float>& x, int channels, int row, int column, int channel) {
  const bool is_inside = 0 <= row && row < kSide && 0 <= column && column < kSide;
  return is_inside ? x[(row * kSide + column) * channels + channel] : 0;
}

// The definition. filter[output channel][3][3][input channel]. `Sum` is the type in which it adds.
template <class Sum>
std::vector<Sum> direct(const std::vector<float>& x, const std::vector<float>& filter, int channels,
                        Cost& cost) {
  std::vector<Sum> y(kSide * kSide * channels);
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column)
      for (int out = 0; out < channels; ++out) {
        Sum sum = 0;
        for (int tap = 0; tap < 9; ++tap)
          for (int in = 0; in < channels; ++in, ++cost.multiply_adds)
            sum += static_cast<Sum>(at(x, channels, row + tap / 3 - 1, column + tap % 3 - 1, in)) *
                   static_cast<Sum>(filter[(out * 9 + tap) * channels + in]);
        y[(row * kSide + column) * channels + out] = sum;
      }
  return y;
}

// c[m][n] = a[m][k] times b[n][k]
void multiply(const float* a, const float* b, float* c, int m, int n, int k, Cost& cost) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l, ++cost.multiply_adds) sum += a[i * k + l] * b[j * k + l];
      c[i * n + j] = sum;
    }
}

// Copies the 9 neighbors of each pixel into a row of a matrix, and multiplies it with the filter.
std::vector<float> by_columns(const std::vector<float>& x, const std::vector<float>& filter, int channels,
                              Cost& cost) {
  std::vector<float> matrix, y(kSide * kSide * channels);
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column)
      for (int tap = 0; tap < 9; ++tap)
        for (int in = 0; in < channels; ++in)
          matrix.push_back(at(x, channels, row + tap / 3 - 1, column + tap % 3 - 1, in));
  cost.floats += matrix.size();
  multiply(matrix.data(), filter.data(), y.data(), kSide * kSide, channels, 9 * channels, cost);
  return y;
}

using Matrix = std::vector<std::vector<float>>;

// Winograd's F(m x m, 3 x 3): y = A' [(G g G') . (B' d B)] A for each tile of m x m outputs d.
struct Scheme {
  int m;
  Matrix b, g, a;  // b and a are transposed
};
const Scheme kTwo = {2,
                     {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
                     {{1, 0, 0}, {.5f, .5f, .5f}, {.5f, -.5f, .5f}, {0, 0, 1}},
                     {{1, 1, 1, 0}, {0, 1, -1, -1}}};
const Scheme kFour = {4,
                      {{4, 0, -5, 0, 1, 0},
                       {0, -4, -4, 1, 1, 0},
                       {0, 4, -4, -1, 1, 0},
                       {0, -2, -1, 2, 1, 0},
                       {0, 2, -1, -2, 1, 0},
                       {0, 4, 0, -5, 0, 1}},
                      {{1 / 4.f, 0, 0},
                       {-1 / 6.f, -1 / 6.f, -1 / 6.f},
                       {-1 / 6.f, 1 / 6.f, -1 / 6.f},
                       {1 / 24.f, 1 / 12.f, 1 / 6.f},
                       {1 / 24.f, -1 / 12.f, 1 / 6.f},
                       {0, 0, 1}},
                      {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}}};

// Returns t d t', for a square d. Counts the elements of t that are not 0.
Matrix transform(const Matrix& t, const Matrix& d, Cost& cost) {
  const auto rows = [&](const Matrix& of) {  // (t of)'
    Matrix result(of[0].size(), std::vector<float>(t.size()));
    for (std::size_t i = 0; i < t.size(); ++i)
      for (std::size_t k = 0; k < of.size(); ++k) {
        if (t[i][k] == 0) continue;
        for (std::size_t j = 0; j < of[0].size(); ++j, ++cost.multiply_adds)
          result[j][i] += t[i][k] * of[k][j];
      }
    return result;
  };
  return rows(rows(d));
}

std::vector<float> winograd(const std::vector<float>& x, const std::vector<float>& filter, int channels,
                            const Scheme& scheme, Cost& cost) {
  const int m = scheme.m, n = m + 2, points = n * n, tiles = (kSide / m) * (kSide / m);
  // One matrix per point: v[point][tile][in], u[point][out][in], and their product z[point][tile][out].
  std::vector<float> v(points * tiles * channels), u(points * channels * channels), z(v.size()),
      y(kSide * kSide * channels);
  cost.floats += v.size() + u.size() + z.size();
  for (int tile = 0; tile < tiles; ++tile)
    for (int in = 0; in < channels; ++in) {
      Matrix d(n, std::vector<float>(n));
      for (int i = 0; i < points; ++i)
        d[i / n][i % n] =
            at(x, channels, tile / (kSide / m) * m + i / n - 1, tile % (kSide / m) * m + i % n - 1, in);
      const Matrix t = transform(scheme.b, d, cost);
      for (int i = 0; i < points; ++i) v[(i * tiles + tile) * channels + in] = t[i / n][i % n];
    }
  for (int out = 0; out < channels; ++out)
    for (int in = 0; in < channels; ++in) {
      Matrix g(3, std::vector<float>(3));
      for (int tap = 0; tap < 9; ++tap) g[tap / 3][tap % 3] = filter[(out * 9 + tap) * channels + in];
      const Matrix t = transform(scheme.g, g, cost);
      for (int i = 0; i < points; ++i) u[(i * channels + out) * channels + in] = t[i / n][i % n];
    }
  for (int i = 0; i < points; ++i)
    multiply(&v[i * tiles * channels], &u[i * channels * channels], &z[i * tiles * channels], tiles, channels,
             channels, cost);
  for (int tile = 0; tile < tiles; ++tile)
    for (int out = 0; out < channels; ++out) {
      Matrix d(n, std::vector<float>(n));
      for (int i = 0; i < points; ++i) d[i / n][i % n] = z[(i * tiles + tile) * channels + out];
      const Matrix t = transform(scheme.a, d, cost);
      for (int i = 0; i < m * m; ++i)
        y[((tile / (kSide / m) * m + i / m) * kSide + tile % (kSide / m) * m + i % m) * channels + out] =
            t[i / m][i % m];
    }
  return y;
}

// The root of the mean square of the errors, relative to that of the results.
double error(const std::vector<float>& y, const std::vector<double>& exact) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    errors += (y[i] - exact[i]) * (y[i] - exact[i]);
    squares += exact[i] * exact[i];
  }
  return std::sqrt(errors / squares);
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  std::printf(is_json ? "{" : "channels   way              multiply-adds   floats of buffers   error\n");
  for (int channels : {1, 4, 16, 64}) {
    std::vector<float> x(kSide * kSide * channels), filter(9 * channels * channels);
    const auto draw = [](std::uint32_t i, std::uint32_t what) {
      return philox({i, what, 0, 0}, {7, 0})[0] * 0x1p-31f - 1;
    };
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::max(draw(i, 0), 0.0f);  // as after a ReLU
    for (std::size_t i = 0; i < filter.size(); ++i) filter[i] = draw(i, 1);
    Cost costs[5];
    const std::vector<double> exact = direct<double>(x, filter, channels, costs[4]);
    const struct {
      const char* name;
      std::vector<float> y;
    } ways[] = {{"direct", direct<float>(x, filter, channels, costs[0])},
                {"columns", by_columns(x, filter, channels, costs[1])},
                {"F(2x2)", winograd(x, filter, channels, kTwo, costs[2])},
                {"F(4x4)", winograd(x, filter, channels, kFour, costs[3])}};
    if (is_json) std::printf("%s\"%d\": {", channels > 1 ? ",\n" : "", channels);
    for (int i = 0; i < 4; ++i) {
      const double relative = error(ways[i].y, exact);
      if (is_json)
        std::printf("%s\"%s\": {\"multiply_adds\": %ld, \"floats\": %ld, \"error\": %.2f}", i > 0 ? ", " : "",
                    ways[i].name, costs[i].multiply_adds, costs[i].floats, 1e6 * relative);
      else
        std::printf("%8d   %-15s %14ld %19ld %7.1e\n", channels, ways[i].name, costs[i].multiply_adds,
                    costs[i].floats, relative);
    }
    if (is_json) std::printf("}");
  }
  std::printf(is_json ? "}\n" : "");
}
