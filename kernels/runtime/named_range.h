// Named ranges of host threads for the timeline of a GPU profiler (Nsight Systems).
#pragma once

#include <string_view>

namespace convoy {

/// A scope guard that opens an NVTX range on the calling thread and closes it in the destructor. Ranges nest.
/// The cost is negligible without an attached profiler. Does nothing in builds without the header of NVTX 3,
/// which the CUDA Toolkit has.
/// One thread creates and destroys a range; several threads may have ranges at the same time.
class NamedRange {
 public:
  /// Opens a range with this name.
  explicit NamedRange(std::string_view name);
  /// Closes the range.
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace convoy
