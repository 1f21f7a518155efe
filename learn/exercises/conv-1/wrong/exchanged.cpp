// Column by column.
#include <span>
#include <vector>

std::vector<float> columns(std::span<const float> x, int rows, int width, int channels) {
  std::vector<float> result;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < width; ++column)
      for (int ky = -1; ky <= 1; ++ky)
        for (int kx = -1; kx <= 1; ++kx)
          for (int channel = 0; channel < channels; ++channel) {
            const int r = row + kx, c = column + ky;
            const bool is_inside = 0 <= r && r < rows && 0 <= c && c < width;
            result.push_back(is_inside ? x[(r * width + c) * channels + channel] : 0);
          }
  return result;
}
