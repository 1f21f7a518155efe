// Each rank clips by the norm of its own part.
#include <cmath>
#include <span>

#include "collectives.h"

float clip(links::Rank& rank, std::span<float> own, float limit) {
  float squares = 0;
  for (float value : own) squares += value * value;
  const float norm = std::sqrt(squares);
  if (norm > limit)
    for (float& value : own) value *= limit / norm;
  return norm;
}
