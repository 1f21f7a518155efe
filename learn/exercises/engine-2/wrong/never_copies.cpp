// Adds to numbers that another slot refers to.
#include "values.h"

struct Slot {
  Tensor gradient;  // null before the first contribution
};

void contribute(Slot& slot, const Tensor& part) {
  if (slot.gradient == nullptr) {
    slot.gradient = part;
    return;
  }
  for (std::size_t i = 0; i < part->data.size(); ++i) slot.gradient->data[i] += part->data[i];
}
