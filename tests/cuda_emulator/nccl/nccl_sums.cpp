#include "tests/cuda_emulator/nccl/nccl_sums.h"

#include <cstdint>

#include "convoy/kernels/base/dtype.h"

namespace convoy::emulator {
namespace {

template <class T, class Sum>
void add(void* to, const void* from, std::size_t count) {
  auto* const sums = static_cast<T*>(to);
  const auto* const terms = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i)
    sums[i] = static_cast<T>(static_cast<Sum>(sums[i]) + static_cast<Sum>(terms[i]));
}

}  // namespace

bool can_add(ncclDataType_t type) { return type != ncclUint8; }

void add_elements(ncclDataType_t type, void* to, const void* from, std::size_t count) {
  switch (type) {
    case ncclUint8: return;
    case ncclInt32:
      return add<std::uint32_t, std::uint32_t>(to, from, count);  // unsigned: overflow is defined
    case ncclFloat16: return add<float16, float>(to, from, count);
    case ncclBfloat16: return add<bfloat16, float>(to, from, count);
    case ncclFloat32: return add<float, float>(to, from, count);
    case ncclFloat64: return add<double, double>(to, from, count);
  }
}

}  // namespace convoy::emulator
