// The parameters of stage 3 are not gathered again for the backward pass.
struct Bytes {
  double stored, sent;
};

Bytes bytes(int stage, double parameters, int ranks) {
  const double of_parameters = stage >= 3 ? 2.0 / ranks : 2, of_gradients = stage >= 2 ? 2.0 / ranks : 2,
               of_optimizer = stage >= 1 ? 12.0 / ranks : 12;
  return {(of_parameters + of_gradients + of_optimizer) * parameters,
          2 * (ranks - 1.0) / ranks * 2 * parameters};
}
