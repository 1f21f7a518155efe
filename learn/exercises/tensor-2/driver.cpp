#include <string>

#include "program.h"

static std::string text(const std::vector<int>& numbers) {
  std::string result;
  for (int number : numbers) result += (result.empty() ? "" : ", ") + std::to_string(number);
  return "[" + result + "]";
}

// What the exercise asks for, with the axes of `shape` moved by `shift`.
static bool is_possible(const std::vector<int>& shape, const std::vector<int>& stride,
                        const std::vector<int>& to, std::size_t shift, std::vector<int>& result) {
  result.assign(to.size(), 0);
  if (shape.size() > to.size()) return false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    if (shape[axis] != to[axis + shift]) return false;
    result[axis + shift] = stride[axis];
  }
  return true;
}

void lesson::run(Case& at) {
  for (int pair = 0; pair < at.size(0); ++pair) {
    const std::vector<int> to = at.values<int>(3, 2, 6);
    std::vector<int> shape(to.end() - (pair == 0 ? 2 : 1 + static_cast<int>(at.next() % 3)), to.end());
    for (int& size : shape) {
      const unsigned choice = at.next() % 8;
      if (choice < 3) size = 1;
      if (choice == 7 && pair > 0) size += 1;
    }
    if (at.next() % 16 == 0 && pair > 0) shape.insert(shape.begin(), 4, 1);
    std::vector<int> stride(shape.size(), 1), actual, expected, other;
    for (std::size_t axis = shape.size() - 1; axis-- > 0;) stride[axis] = stride[axis + 1] * shape[axis + 1];
    const std::size_t shift = to.size() - shape.size();
    const bool is_right = is_possible(shape, stride, to, shift, expected),
               found = broadcast(shape, stride, to, actual);
    const bool by_first = is_possible(shape, stride, to, 0, other);
    const char* const from =
        by_first != is_right || other != expected ? ": axes are compared from the last one" : "";
    const std::string what = text(shape) + " to " + text(to);
    if (is_right && !found)
      at.fail("%s is refused, expected the strides %s%s", what.c_str(), text(expected).c_str(), from);
    if (!is_right && found)
      at.fail(
          "%s is accepted, %s", what.c_str(),
          shape.size() > to.size() ? "but it has more axes" : "but an axis of 2 or more has another size");
    if (is_right && actual != expected) {
      bool is_kept = false;
      for (std::size_t axis = 0; axis < shape.size() && actual.size() == to.size(); ++axis)
        is_kept = is_kept || (shape[axis] == 1 && actual[axis + shift] == stride[axis]);
      at.fail("%s: found the strides %s, expected %s%s", what.c_str(), text(actual).c_str(),
              text(expected).c_str(), is_kept ? ": an axis of size 1 is repeated: its stride is 0" : from);
    }
  }
}
