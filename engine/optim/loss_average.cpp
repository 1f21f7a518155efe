#include "convoy/engine/optim/loss_average.h"

#include <limits>

#include "convoy/kernels/base/check.h"

namespace convoy::optim {

LossAverage::LossAverage(double decay) : decay_(decay) {
  check(decay >= 0 && decay < 1, "loss average: decay is {}, expected at least 0 and less than 1", decay);
}

void LossAverage::add(double loss) {
  state_.sum = decay_ * state_.sum + (1 - decay_) * loss;
  state_.weight = decay_ * state_.weight + (1 - decay_);
}

double LossAverage::value() const {
  return state_.weight > 0 ? state_.sum / state_.weight : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace convoy::optim
