// Tests the index instead of row and column.
#include <span>
#include <vector>

std::vector<float> columns(std::span<const float> x, int rows, int width, int channels) {
  std::vector<float> result;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < width; ++column)
      for (int ky = -1; ky <= 1; ++ky)
        for (int kx = -1; kx <= 1; ++kx)
          for (int channel = 0; channel < channels; ++channel) {
            const int r = row + ky, c = column + kx;
            const int index = r * width + c;
            const bool is_inside = 0 <= index && index < rows * width;
            result.push_back(is_inside ? x[index * channels + channel] : 0);
          }
  return result;
}
