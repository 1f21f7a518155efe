struct Bytes {
  double stored, sent;
};

// A rank stores the parameters and the gradients of a network in 16 bits each, and for Adam three numbers of
// 32 bits: a copy of the parameters, and two means. Stage 1 divides what Adam needs by the number of ranks,
// stage 2 also the gradients, stage 3 also the parameters. In a step, gradients are added in a ring, and
// parameters are gathered: in stages 1 and 2 once, in stage 3 before the forward pass and before the backward
// pass. In stage 0 there is one all-reduce of the gradients.
//
// Returns the bytes that a rank stores, buffers not counted, and the bytes that it sends in a step.
Bytes bytes(int stage, double parameters, int ranks) {
  // TODO
  return {0, 0};
}
