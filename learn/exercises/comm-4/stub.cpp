// A message of S bytes takes alpha + beta S seconds. Recursive doubling has log2(n) rounds, in each of which a rank sends the
// whole array. The ring has n - 1 steps to add and n - 1 steps to gather, in each of which a rank sends 1 / n of the array.
//
// Returns the size of an array (bytes) for which both take the same time. `ranks` is a power of two, at least 4.
double crossover(int ranks, double alpha, double beta) {
  // TODO
  return 0;
}
