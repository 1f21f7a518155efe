// Pieces of views, by elements.
#pragma once

#include <cstring>

#include "kernels/runtime/view.h"

namespace convoy {

/// Elements [offset, offset + count) of a View or ConstView, as one row.
template <class AnyView>
AnyView part_of(const AnyView& whole, std::int64_t offset, std::int64_t count) {
  AnyView part = whole;
  part.data = whole.template as<char>() + static_cast<std::size_t>(offset) * size_of(whole.dtype);
  part.shape = {count};
  return part;
}

/// On the CPU; of as many bytes. Apart, or the very same.
inline void copy_view(ConstView from, View to) {
  if (from.bytes() > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace convoy
