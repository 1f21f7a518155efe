// Slices and copies of views.
#pragma once

#include <cstring>

#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// Returns elements [offset, offset + count) of a View or ConstView, as a one-dimensional view.
template <class AnyView>
AnyView subview(const AnyView& whole, std::int64_t offset, std::int64_t count) {
  AnyView part = whole;
  part.data = whole.template as<char>() + static_cast<std::size_t>(offset) * size_of(whole.dtype);
  part.shape = {count};
  return part;
}

/// Copies `from` to `to` on the CPU. Both have the same number of bytes. They are either identical or
/// disjoint.
inline void copy_view(ConstView from, View to) {
  if (from.bytes() > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace convoy::dist
