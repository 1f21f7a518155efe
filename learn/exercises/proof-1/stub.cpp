#include <cmath>
#include <functional>
#include <vector>

// A function that returns the variance of each row of x, which has rows x n elements: the mean of the squared distances from
// the row's mean. A row with a NaN has the variance NaN. n is at least 2.
using Variances = std::function<std::vector<float>(const std::vector<float>& x, int rows, int n)>;

// Returns whether the function is right, as far as a few calls tell. It may round: results within 0.1 % are right.
bool accepts(const Variances& variances) {
  // TODO: more values, rows and sizes; this finds only what is wrong for two rows of two numbers
  const std::vector<float> results = variances({1, 3, 5, 9}, 2, 2);
  return results[0] == 1 && results[1] == 4;
}
