#include <span>
#include <vector>

#include "collectives.h"

// The mean of count numbers, and the mean of their squared distances from it.
struct Moments {
  float count, mean, variance;
};

// Returns the moments of the numbers of all ranks together, the same bits on all ranks. `own` are those of
// this rank's numbers; a rank may have none, and then all three are 0. One collective is enough:
// collectives.h has all_gather() and all_reduce(). The mean may be 10,000 and the variance 1. TODO
Moments synchronize(links::Rank& rank, const Moments& own) { return own; }
