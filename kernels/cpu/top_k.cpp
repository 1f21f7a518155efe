// kernels/top_k.h on the CPU. It partitions the positions in a time that is linear in N, and sorts the chosen ones.
#include "convoy/kernels/top_k.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "convoy/kernels/cpu/primitives/element.h"
#include "convoy/kernels/shared/descending_order.h"

namespace convoy::kernels {

void top_k(CpuStream&, ConstView x, View positions) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(x.numel()));
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + positions.numel();
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    const auto* const values = x.as<decltype(zero)>();
    std::nth_element(order.begin(), end, order.end(), [values](std::int32_t i, std::int32_t j) {
      return comes_before(widened(values[i]), i, widened(values[j]), j);
    });
  });
  std::sort(order.begin(), end);
  std::copy(order.begin(), end, positions.as<std::int32_t>());
}

}  // namespace convoy::kernels
