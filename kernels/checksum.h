// Checksums of arrays, to compare them between ranks without moving them.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// value (i32 [2]) = the value of Checksum (base/checksum.h) for the bytes of x, low word first; any element
// type. x and value begin at multiples of 8 bytes.
void checksum(CpuStream&, ConstView x, View value);
void checksum(CudaStream&, ConstView x, View value);

}  // namespace convoy::kernels
