// kernels/checksum.h on the CPU.
#include "convoy/kernels/checksum.h"

#include <cstring>

#include "convoy/kernels/base/checksum.h"

namespace convoy::kernels {

void checksum(CpuStream&, ConstView x, View value) {
  Checksum checksum;
  checksum.add(x.data, x.bytes());
  const std::uint64_t result = checksum.value();
  std::memcpy(value.data, &result, sizeof result);
}

}  // namespace convoy::kernels
