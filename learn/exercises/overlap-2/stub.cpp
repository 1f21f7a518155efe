#include <algorithm>
#include <vector>

// ready[i] is the time at which gradient i is final (seconds), bytes[i] its size. The sum of a bucket of S bytes over all ranks takes
// alpha + beta S seconds. Buckets have neighboring gradients, and are sent one after another.
//
// Returns the number of gradients of each bucket. TODO: so that the last one ends as early as possible. Here all are in one.
std::vector<int> plan(const std::vector<double>& ready, const std::vector<double>& bytes, double alpha,
                      double beta) {
  return {static_cast<int>(ready.size())};
}
