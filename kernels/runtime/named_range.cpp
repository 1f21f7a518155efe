#include "convoy/kernels/runtime/named_range.h"

#if defined(CONVOY_NVTX)
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#endif

namespace convoy {

#if defined(CONVOY_NVTX)

NamedRange::NamedRange(std::string_view name) {
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
