#include <span>
#include <vector>

#include "collectives.h"

// One step. `gradients` are those of this rank's samples, g is their sum over all ranks. For each weight w
// and its velocity v, the step is v = v / 2 + g, then w = w - v / 4. The weights are equal on all ranks,
// before and after. `gradients` may be overwritten. `velocity` is yours, and empty before the first step.
// collectives.h has part(), reduce_scatter(), all_gather() and all_reduce(), for any number of floats.
//
// This version is right, and each rank stores all velocities. TODO: store those of this rank's part.
void step(links::Rank& rank, std::span<float> weights, std::span<float> gradients,
          std::vector<float>& velocity) {
  links::all_reduce(rank, gradients);
  velocity.resize(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    velocity[i] = velocity[i] / 2 + gradients[i];
    weights[i] -= velocity[i] / 4;
  }
}
