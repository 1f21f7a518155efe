// The ring without its second phase.
#include <cmath>

double crossover(int ranks, double alpha, double beta) {
  const double rounds = std::log2(ranks), steps = ranks - 1.0;
  return alpha * (steps - rounds) / (beta * (rounds - steps / ranks));
}
