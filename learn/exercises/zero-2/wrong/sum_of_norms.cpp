// Adds norms.
#include <cmath>
#include <span>

#include "collectives.h"

float clip(links::Rank& rank, std::span<float> own, float limit) {
  float squares = 0;
  for (float value : own) squares += value * value;
  float norm = std::sqrt(squares);
  links::all_reduce(rank, std::span(&norm, 1));
  if (norm > limit)
    for (float& value : own) value *= limit / norm;
  return norm;
}
