// Compares axes from the first one.
#include <cstddef>
#include <vector>

bool broadcast(const std::vector<int>& shape, const std::vector<int>& stride, const std::vector<int>& to,
               std::vector<int>& result) {
  result.assign(to.size(), 0);
  if (shape.size() > to.size()) return false;
  const std::size_t shift = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    if (shape[axis] != to[axis + shift]) return false;
    result[axis + shift] = stride[axis];
  }
  return true;
}
