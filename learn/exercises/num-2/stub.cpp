#include <span>

// Returns the sum of two numbers, rounded to bf16.
float add(float a, float b);

// Returns the sum of x, which has at least one number, by add().
//
// One after another, the sum of ones ends at 256: 257 has nine binary digits, and bf16 has eight. TODO: another order.
float sum(std::span<const float> x) {
  float result = x[0];
  for (float each : x.subspan(1)) result = add(result, each);
  return result;
}
