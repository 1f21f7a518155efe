// Names for what the host's threads do, as a GPU's profiler (Nsight Systems) shows them.
#pragma once

#include <string_view>

namespace convoy {

/// From its construction to its destruction its thread is in a range of this name, within those it was in
/// before. An NVTX range in builds that have CUDA's nvtx3 header, where it costs next to nothing while no
/// profiler listens; nothing in others.
class NamedRange {
 public:
  explicit NamedRange(std::string_view name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

}  // namespace convoy
