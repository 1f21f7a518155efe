#include <vector>

// A batch was divided into parts, one for each of several computers. Part p has counts[p] images, and means[p] is the mean of their
// gradients. Of a part without images the mean is not a number: 0 / 0.
//
// Returns the mean over all images of the batch.
std::vector<double> combine(const std::vector<std::vector<double>>& means, const std::vector<int>& counts) {
  std::vector<double> gradient(means[0].size(), 0);
  // TODO
  return gradient;
}
