// Ignores the order.
#include <cstddef>
#include <vector>

std::vector<int> strides_of(const std::vector<int>& shape, const std::vector<int>&) {
  std::vector<int> stride(shape.size(), 1);
  for (std::size_t axis = shape.size() - 1; axis-- > 0;) stride[axis] = stride[axis + 1] * shape[axis + 1];
  return stride;
}
