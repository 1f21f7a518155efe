// Named ranges of host threads for the timeline of a GPU profiler (Nsight Systems).
#pragma once

#include <string_view>

namespace convoy {

/// A scope guard that opens an NVTX range on the calling thread and closes it in the destructor. Ranges nest.
/// The cost is negligible without an attached profiler. Does nothing in builds without CUDA's nvtx3 header.
class NamedRange {
 public:
  explicit NamedRange(std::string_view name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace convoy
