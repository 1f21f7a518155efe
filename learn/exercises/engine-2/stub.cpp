#include "values.h"

// In z = x + y, the gradients of x and y are both dz. See values.h: a Tensor is a handle to numbers, and several handles
// may refer to the same ones.
struct Slot {
  Tensor gradient;  // null before the first contribution
};

// Adds `part` to the gradient of a slot. The numbers of `part` do not change: other slots may refer to them.
//
// This version is right, and copies each first contribution. TODO: copy only if it must be.
void contribute(Slot& slot, const Tensor& part) {
  if (slot.gradient == nullptr) {
    slot.gradient = clone(part);
    return;
  }
  for (std::size_t i = 0; i < part->data.size(); ++i) slot.gradient->data[i] += part->data[i];
}
