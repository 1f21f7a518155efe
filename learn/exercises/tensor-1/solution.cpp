#include <cstddef>
#include <vector>

std::vector<int> strides_of(const std::vector<int>& shape, const std::vector<int>& order) {
  std::vector<int> stride(shape.size(), 0);
  int elements = 1;
  for (std::size_t place = order.size(); place-- > 0;) {
    stride[order[place]] = elements;
    elements *= shape[order[place]];
  }
  return stride;
}
