#include <cstddef>
#include <vector>

// Returns the stride of each axis of a tensor without gaps. `order` has the numbers of the axes in the order in which they are
// stored: the last one has neighbors in memory, so its stride is 1. For the shape {4, 5, 3}, the order {0, 1, 2} gives
// {15, 3, 1}, and the order {2, 0, 1}, with the channels first, gives {5, 1, 20}.
std::vector<int> strides_of(const std::vector<int>& shape, const std::vector<int>& order) {
  std::vector<int> stride(shape.size(), 0);
  // TODO
  return stride;
}
