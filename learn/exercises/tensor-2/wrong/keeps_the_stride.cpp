// An axis of size 1 keeps its stride, and the loop reads what is behind the tensor.
#include <cstddef>
#include <vector>

bool broadcast(const std::vector<int>& shape, const std::vector<int>& stride, const std::vector<int>& to,
               std::vector<int>& result) {
  result.assign(to.size(), 0);
  if (shape.size() > to.size()) return false;
  const std::size_t shift = to.size() - shape.size();
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != 1 && shape[axis] != to[axis + shift]) return false;
    result[axis + shift] = stride[axis];
  }
  return true;
}
