// A rank sends its own part, too.
struct Bytes {
  double stored, sent;
};

Bytes bytes(int stage, double parameters, int ranks) {
  const double of_parameters = stage >= 3 ? 2.0 / ranks : 2, of_gradients = stage >= 2 ? 2.0 / ranks : 2,
               of_optimizer = stage >= 1 ? 12.0 / ranks : 12;
  return {(of_parameters + of_gradients + of_optimizer) * parameters, (stage >= 3 ? 3 : 2) * 2 * parameters};
}
