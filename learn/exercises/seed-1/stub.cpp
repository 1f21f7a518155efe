#include <span>

#include "philox.h"

// Dropout with the probability 1/2: sets about half of the elements to 0, and doubles the others. `values`
// are the samples `first`, `first` + 1, … of a batch, with `features` floats each. Another rank, or another
// call, has the other samples.
//
// The mask of an element depends on the seed, the layer, the step, the sample and the feature, and on nothing
// else. For another layer, step, sample or seed it is another mask. philox.h has random words. TODO
void dropout(std::span<float> values, int first, int features, std::uint32_t seed, int layer, int step) {
  for (float& value : values) value *= 2;
}
