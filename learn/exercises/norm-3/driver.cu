#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int rows = at.size(0), channels = at.size(1), middle = at.size(2);
  float *x, *mean, *variance;
  cudaMalloc(&x, rows * channels * sizeof(float));
  cudaMalloc(&mean, channels * sizeof(float));
  cudaMalloc(&variance, channels * sizeof(float));
  const std::vector<float> host = at.fill(x, rows * channels, middle - 8, middle + 8);
  at.clear(mean, channels);
  at.clear(variance, channels);
  moments<<<(channels + 31) / 32, dim3(32, 8)>>>(x, mean, variance, rows, channels);
  at.finish_kernel();
  std::vector<float> means(channels), variances(channels);
  cudaMemcpy(means.data(), mean, channels * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(variances.data(), variance, channels * sizeof(float), cudaMemcpyDeviceToHost);
  // Exact values in double; the limits are those of a few hundred additions in float.
  const auto compare = [&](const char* name, int channel, float value, double right, double limit,
                           const char* why) {
    if (std::fabs(value - right) <= limit) return;
    char found[40];
    std::snprintf(found, sizeof found, std::isnan(value) ? "not a number" : "%g", static_cast<double>(value));
    at.fail("%s[%d] is %s, expected %g%s", name, channel, found, right, why);
  };
  for (int channel = 0; channel < channels; ++channel) {
    double center = 0, squares = 0;
    for (int row = 0; row < rows; ++row) center += host[row * channels + channel] / static_cast<double>(rows);
    for (int row = 0; row < rows; ++row) squares += std::pow(host[row * channels + channel] - center, 2);
    const double expected = squares / rows;
    compare("mean", channel, means[channel], center, 1e-6 * std::fabs(center) + 1e-5,
            std::isnan(means[channel]) && rows < 8 ? ": a warp has no rows" : "");
    compare("variance", channel, variances[channel], expected, 1e-3 * expected + 1e-5,
            middle > 100 ? ": digits are lost, as large numbers are subtracted" : "");
  }
}
