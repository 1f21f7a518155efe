#include <cstddef>
#include <vector>

// A tensor with `shape` and `stride` is to be used as if it had the shape `to`. Their axes are compared from the last one
// backward. An axis of size 1, and one that `shape` does not have, is repeated; any other must have the size of `to`.
//
// Returns whether this is possible, and writes the strides for `to`. For the shape {4, 1} with the strides {1, 1}, to {2, 4, 3}:
// {0, 1, 0}.
bool broadcast(const std::vector<int>& shape, const std::vector<int>& stride, const std::vector<int>& to,
               std::vector<int>& result) {
  result.assign(to.size(), 0);
  // TODO
  return false;
}
