// There is no edge.
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
            result.push_back(*(x.data() + (r * width + c) * channels + channel));
          }
  return result;
}
