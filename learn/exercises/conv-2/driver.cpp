#include "program.h"

void lesson::run(Case& at) {
  const int channels = at.size(0);
  std::vector<Tile> d(channels), u(channels);
  double expected[2][2] = {};
  const double g_matrix[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  for (int channel = 0; channel < channels; ++channel) {
    const std::vector<float> x = at.values(16), g = at.values(9);
    for (int i = 0; i < 16; ++i) d[channel].at[i / 4][i % 4].value = x[i];
    for (int i = 0; i < 36; ++i)
      expected[i / 18][i / 9 % 2] +=
          static_cast<double>(x[(i / 18 + i % 9 / 3) * 4 + i / 9 % 2 + i % 3] * g[i % 9]);
    for (int i = 0; i < 16; ++i) {
      double sum = 0;
      for (int k = 0; k < 9; ++k)
        sum += g_matrix[i / 4][k / 3] * static_cast<double>(g[k]) * g_matrix[i % 4][k % 3];
      u[channel].at[i / 4][i % 4].value = static_cast<float>(sum);
    }
  }
  Counted::additions = Counted::multiplications = 0;
  const Result y = winograd(d, u);
  const double multiplications = Counted::multiplications, additions = Counted::additions;
  for (int i = 0; i < 4; ++i) {
    const double found = y.at[i / 2][i % 2].value;
    if (found != expected[i / 2][i % 2])  // exact: multiples of 1/4
      at.fail("y[%d][%d] is %g, expected %g", i / 2, i % 2, found, expected[i / 2][i % 2]);
  }
  at.count("multiplications", multiplications);
  at.count("additions", additions);
}
