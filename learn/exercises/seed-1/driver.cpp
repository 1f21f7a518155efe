#include <algorithm>

#include "program.h"

namespace {

struct Place {
  std::uint32_t seed;
  int layer, step;
};

// The mask of a batch: 1 where an element stays. It is computed in parts of `cut` samples.
std::vector<int> mask_of(lesson::Case& at, const Place& place, int samples, int features, int cut) {
  std::vector<int> mask;
  for (int first = 0; first < samples; first += cut) {
    const std::size_t size = static_cast<std::size_t>(std::min(cut, samples - first)) * features;
    const std::vector<float> before = at.values(static_cast<int>(size));
    std::vector<float> after = before;
    dropout(after, first, features, place.seed, place.layer, place.step);
    for (std::size_t i = 0; i < size; ++i) {
      if (after[i] != 0 && after[i] != 2 * before[i])
        at.fail("%g becomes %g, expected 0 or %g", static_cast<double>(before[i]),
                static_cast<double>(after[i]), static_cast<double>(2 * before[i]));
      mask.push_back(after[i] != 0);
    }
  }
  return mask;
}

}  // namespace

void lesson::run(Case& at) {
  const int samples = at.size(0), features = at.size(1), elements = samples * features;
  const Place place = {at.next(), 2, 5};
  const std::vector<int> mask = mask_of(at, place, samples, features, samples);
  const int kept = static_cast<int>(std::count(mask.begin(), mask.end(), 1));
  if (std::abs(2 * kept - elements) > 6 * std::sqrt(elements))  // six standard deviations
    at.fail("%d of %d elements stay, expected about half", kept, elements);
  if (mask_of(at, place, samples, features, samples) != mask)
    at.fail("a second call has another mask, expected the same for the same step");
  for (int cut : {1, 2, 3}) {
    const std::vector<int> other = mask_of(at, place, samples, features, cut);
    const auto [found, expected] = std::mismatch(other.begin(), other.end(), mask.begin());
    if (found != other.end())
      at.fail("sample %d has another mask if the batch is cut into parts of %d",
              static_cast<int>((found - other.begin()) / features), cut);
  }
  const struct {
    const char* what;
    Place place;
  } others[] = {{"another step", {place.seed, 2, 6}},
                {"another layer", {place.seed, 3, 5}},
                {"the layer before in the step after", {place.seed, 1, 6}},
                {"another seed", {place.seed + 1, 2, 5}}};
  for (const auto& [what, other] : others)
    if (mask_of(at, other, samples, features, samples) == mask) at.fail("%s has the same mask", what);
  for (int sample = 1; sample < samples; ++sample)
    if (std::equal(mask.begin(), mask.begin() + features, mask.begin() + sample * features))
      at.fail("samples 0 and %d have the same mask", sample);
}
