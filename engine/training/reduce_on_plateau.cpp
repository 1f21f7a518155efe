#include "convoy/engine/training/reduce_on_plateau.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

ReduceOnPlateau::ReduceOnPlateau(double rate, PlateauOptions options)
    : options_(options), state_({.first = rate, .rate = rate}) {
  check(options_.factor > 0 && options_.factor < 1,
        "plateau: found a factor of {}, expected more than 0 and less than 1", options_.factor);
  check(options_.patience >= 0, "plateau: found a patience of {}, expected at least 0", options_.patience);
  check(options_.threshold >= 0 && options_.threshold < 1,
        "plateau: found a threshold of {}, expected at least 0 and less than 1", options_.threshold);
  check(options_.minimum >= 0 && options_.minimum <= rate,
        "plateau: found a minimum of {}, expected at least 0 and at most the rate, {}", options_.minimum,
        rate);
}

void ReduceOnPlateau::add(double loss) {
  constexpr double kMinChange = 1e-8;  // as in PyTorch: smaller changes are left out
  if (loss < state_.best.value_or(std::numeric_limits<double>::infinity()) * (1 - options_.threshold)) {
    state_.best = loss;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.bad <= options_.patience) return;
  const double reduced = std::max(state_.rate * options_.factor, options_.minimum);
  if (state_.rate - reduced > kMinChange) state_.rate = reduced;
  state_.bad = 0;
}

void ReduceOnPlateau::restore(const State& state) {
  const double first = std::exchange(state_, state).first;
  if (first == state.first) return;
  state_.first = first;
  state_.rate = std::max(first * (state.rate / state.first), options_.minimum);
}

}  // namespace convoy::training
