// Four partial sums: they end at 256 each.
#include <cstddef>
#include <span>

float add(float a, float b);

float sum(std::span<const float> x) {
  if (x.size() < 4) {
    float result = x[0];
    for (float each : x.subspan(1)) result = add(result, each);
    return result;
  }
  float part[4] = {x[0], x[1], x[2], x[3]};
  for (std::size_t i = 4; i < x.size(); ++i) part[i % 4] = add(part[i % 4], x[i]);
  return add(add(part[0], part[1]), add(part[2], part[3]));
}
