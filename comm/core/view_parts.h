// Slices and copies of views.
#pragma once

#include <algorithm>
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

/// Returns elements [begin, begin + max_count) of a view, or those up to its end.
template <class AnyView>
AnyView piece_at(const AnyView& whole, std::int64_t begin, std::int64_t max_count) {
  return subview(whole, begin, std::min(max_count, whole.numel() - begin));
}

/// Returns shards [first, last) of `count` shards of about equal size.
template <class AnyView>
AnyView shards_of(const AnyView& whole, int first, int last, int count) {
  const std::int64_t begin = whole.numel() * first / count;
  return subview(whole, begin, whole.numel() * last / count - begin);
}

/// Returns shard `index` of `count` shards of about equal size.
template <class AnyView>
AnyView shard_of(const AnyView& whole, int index, int count) {
  return shards_of(whole, index, index + 1, count);
}

/// Returns how many elements of this type fit in `bytes`.
inline std::int64_t elements_in(std::size_t bytes, DType dtype) {
  return static_cast<std::int64_t>(bytes / size_of(dtype));
}

/// Copies `from` to `to` on the CPU. Both have the same number of bytes. They are either identical or
/// disjoint.
inline void copy_view(ConstView from, View to) {
  if (from.bytes() > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace convoy::dist
