// The values of NCCL's enumerators that Convoy uses, as X(name, value). The emulator's nccl.h defines its
// enums from them, and nccl_interface_test.cpp compares them with the real header.
#pragma once

// ncclResult_t.
#define CONVOY_NCCL_RESULTS(X) \
  X(ncclSuccess, 0)            \
  X(ncclUnhandledCudaError, 1) \
  X(ncclSystemError, 2)        \
  X(ncclInternalError, 3)      \
  X(ncclInvalidArgument, 4)    \
  X(ncclInvalidUsage, 5)       \
  X(ncclRemoteError, 6)        \
  X(ncclInProgress, 7)

// ncclDataType_t.
#define CONVOY_NCCL_DATA_TYPES(X) \
  X(ncclUint8, 1)                 \
  X(ncclInt32, 2)                 \
  X(ncclFloat16, 6)               \
  X(ncclFloat32, 7)               \
  X(ncclFloat64, 8)               \
  X(ncclBfloat16, 9)

// ncclRedOp_t.
#define CONVOY_NCCL_REDUCTIONS(X) X(ncclSum, 0)
