#include "program.h"

void lesson::run(Case& at) {
  const int rows = at.size(0), width = at.size(1), channels = at.size(2);
  const std::vector<float> x = at.values(rows * width * channels), found = columns(x, rows, width, channels);
  if (found.size() != x.size() * 9)
    at.fail("the matrix has %zu floats, expected %zu", found.size(), x.size() * 9);
  const auto pixel = [&](int row, int column, int channel) {
    const bool is_inside = 0 <= row && row < rows && 0 <= column && column < width;
    return is_inside ? x[(row * width + column) * channels + channel] : 0;
  };
  for (int i = 0; i < static_cast<int>(found.size()); ++i) {
    const int channel = i % channels, kx = i / channels % 3 - 1, ky = i / channels / 3 % 3 - 1;
    const int column = i / channels / 9 % width, row = i / channels / 9 / width;
    const float expected = pixel(row + ky, column + kx, channel);
    if (found[i] == expected) continue;
    const bool is_inside = 0 <= row + ky && row + ky < rows && 0 <= column + kx && column + kx < width;
    at.fail("the row of pixel (%d, %d) has %g for (%d, %d), channel %d, expected %g%s", row, column,
            static_cast<double>(found[i]), row + ky, column + kx, channel, static_cast<double>(expected),
            found[i] != 0 && found[i] == pixel(row - ky, column - kx, channel)
                ? ": that of the opposite neighbor"
            : !is_inside                                        ? ": this is outside of the image"
            : found[i] == pixel(row + kx, column + ky, channel) ? ": rows and columns are exchanged"
                                                                : "");
  }
}
