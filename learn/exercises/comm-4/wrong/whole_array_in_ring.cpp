// Each step of the ring sends the whole array.
#include <cmath>

double crossover(int ranks, double alpha, double beta) {
  const double rounds = std::log2(ranks), steps = 2.0 * (ranks - 1);
  return alpha * (steps - rounds) / (beta * (rounds - steps));
}
