#include "convoy/kernels/runtime/named_range.h"

#if defined(CONVOY_NVTX)
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#endif

namespace convoy {

#if defined(CONVOY_NVTX)

NamedRange::NamedRange(std::string_view name) {
  // NVTX replaces its function pointers in the first call, and other threads would read them without a lock. A local
  // static is initialized once, before any thread goes on.
  [[maybe_unused]] static const bool initialized = (nvtxInitialize(nullptr), true);
  // A copy with a terminating zero, which the name may lack. Longer names are cut.
  std::array<char, 64> text{};
  std::copy_n(name.begin(), std::min(name.size(), text.size() - 1), text.begin());
  nvtxRangePushA(text.data());
}

NamedRange::~NamedRange() { nvtxRangePop(); }

#else

NamedRange::NamedRange(std::string_view) {}
NamedRange::~NamedRange() = default;

#endif

}  // namespace convoy
