// Begins at the wrong end of the order.
#include <cstddef>
#include <vector>

std::vector<int> strides_of(const std::vector<int>& shape, const std::vector<int>& order) {
  std::vector<int> stride(shape.size(), 0);
  int elements = 1;
  for (int axis : order) {
    stride[axis] = elements;
    elements *= shape[axis];
  }
  return stride;
}
