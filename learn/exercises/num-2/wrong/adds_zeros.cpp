// Begins each sum with 0.
#include <span>

float add(float a, float b);

float sum(std::span<const float> x) {
  if (x.size() == 1) return add(0, x[0]);
  return add(0, add(sum(x.first(x.size() / 2)), sum(x.subspan(x.size() / 2))));
}
