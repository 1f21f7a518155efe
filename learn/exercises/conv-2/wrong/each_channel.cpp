// Transforms back in each channel.
#include <span>

#include "counted.h"

struct Tile {
  Counted at[4][4];
};
struct Result {
  Counted at[2][2];
};

Result winograd(std::span<const Tile> d, std::span<const Tile> u) {
  Result y;
  for (std::size_t channel = 0; channel < d.size(); ++channel) {
    Tile t, v, sum;
    for (int j = 0; j < 4; ++j) {
      const Counted(&x)[4][4] = d[channel].at;
      t.at[0][j] = x[0][j] - x[2][j];
      t.at[1][j] = x[1][j] + x[2][j];
      t.at[2][j] = x[2][j] - x[1][j];
      t.at[3][j] = x[1][j] - x[3][j];
    }
    for (int i = 0; i < 4; ++i) {
      const Counted(&x)[4] = t.at[i];
      v.at[i][0] = x[0] - x[2];
      v.at[i][1] = x[1] + x[2];
      v.at[i][2] = x[2] - x[1];
      v.at[i][3] = x[1] - x[3];
    }
    for (int i = 0; i < 16; ++i) sum.at[i / 4][i % 4] += v.at[i / 4][i % 4] * u[channel].at[i / 4][i % 4];
    Counted rows[2][4];
    for (int j = 0; j < 4; ++j) {
      rows[0][j] = sum.at[0][j] + sum.at[1][j] + sum.at[2][j];
      rows[1][j] = sum.at[1][j] - sum.at[2][j] - sum.at[3][j];
    }
    for (int i = 0; i < 2; ++i) {
      y.at[i][0] += rows[i][0] + rows[i][1] + rows[i][2];
      y.at[i][1] += rows[i][1] - rows[i][2] - rows[i][3];
    }
  }
  return y;
}
