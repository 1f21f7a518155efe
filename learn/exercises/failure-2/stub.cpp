#include <algorithm>
#include <span>
#include <vector>

// Returns the samples that a rank takes in a step. `order` has all samples of the epoch, shuffled, the same
// on all ranks. `position` is the number of samples that earlier steps of the epoch have used, on all ranks,
// and `batch` the samples of a step, on all ranks. The last step of an epoch may have fewer.
//
// In a step, all ranks together take the same samples, however many ranks there are, and each takes as many,
// or one more. So that an epoch has each sample once, also if `ranks` is another number from one step to the
// next. TODO
std::vector<int> samples(std::span<const int> order, int position, int batch, int rank, int ranks) {
  return {};
}
