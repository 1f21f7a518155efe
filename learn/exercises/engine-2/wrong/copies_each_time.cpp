// Copies before each addition, also numbers that no other slot refers to.
#include "values.h"

struct Slot {
  Tensor gradient;  // null before the first contribution
};

void contribute(Slot& slot, const Tensor& part) {
  if (slot.gradient == nullptr) {
    slot.gradient = part;
    return;
  }
  slot.gradient = clone(slot.gradient);
  for (std::size_t i = 0; i < part->data.size(); ++i) slot.gradient->data[i] += part->data[i];
}
