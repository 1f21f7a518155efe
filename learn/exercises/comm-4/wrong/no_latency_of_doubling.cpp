// The messages of doubling cost nothing but their bytes.
#include <cmath>

double crossover(int ranks, double alpha, double beta) {
  const double rounds = std::log2(ranks), steps = 2.0 * (ranks - 1);
  return alpha * steps / (beta * (rounds - steps / ranks));
}
