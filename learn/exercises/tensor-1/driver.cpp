#include <algorithm>
#include <string>

#include "program.h"

static std::string text(const std::vector<int>& numbers) {
  std::string result;
  for (int number : numbers) result += (result.empty() ? "" : ", ") + std::to_string(number);
  return result;
}

// The strides if `places` has the place of each axis, 0 for the outermost.
static std::vector<int> strides_by(const std::vector<int>& shape, const std::vector<int>& places) {
  std::vector<int> stride(3, 1);
  for (int axis = 0; axis < 3; ++axis)
    for (int other = 0; other < 3; ++other)
      if (places[other] > places[axis]) stride[axis] *= shape[other];
  return stride;
}

void lesson::run(Case& at) {
  const std::vector<int> shape = {at.size(0), at.size(1), at.size(2)};
  std::vector<int> order = {0, 1, 2}, places(3), reversed(3);
  for (int i = 0; i < at.size(3); ++i) std::next_permutation(order.begin(), order.end());
  for (int place = 0; place < 3; ++place) places[order[place]] = place, reversed[order[place]] = 2 - place;
  const std::vector<int> actual = strides_of(shape, order), expected = strides_by(shape, places);
  if (actual == expected) return;
  at.fail("strides %s of the order %s, expected %s%s", text(actual).c_str(), text(order).c_str(),
          text(expected).c_str(),
          actual == strides_by(shape, reversed)
              ? ": the first axis of the order is the one whose elements are furthest apart"
          : actual == strides_by(shape, {0, 1, 2}) ? ": these are the strides of the order 0, 1, 2"
          : actual == strides_by(shape, order) ? ": order[i] is the axis at place i, not the place of axis i"
                                               : "");
}
