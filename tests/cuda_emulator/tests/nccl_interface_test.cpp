// Compile-time checks that the emulator's nccl.h and NCCL's own header declare the same interface. The build
// selects which header is compiled.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "tests/cuda_emulator/include/nccl_values.h"

#define CONVOY_CHECK_VALUE(name, value) static_assert(static_cast<int>(name) == (value), #name);
CONVOY_NCCL_RESULTS(CONVOY_CHECK_VALUE)
CONVOY_NCCL_DATA_TYPES(CONVOY_CHECK_VALUE)
CONVOY_NCCL_REDUCTIONS(CONVOY_CHECK_VALUE)

namespace {

template <class F, class Expected>
constexpr bool kIs = std::is_same_v<F, Expected>;

using Size = std::size_t;
using Comm = ncclComm_t;
using Type = ncclDataType_t;
static_assert(kIs<decltype(ncclGetVersion), ncclResult_t(int*)>);
static_assert(kIs<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)>);
static_assert(kIs<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(kIs<decltype(ncclGetLastError), const char*(Comm)>);
static_assert(
    kIs<decltype(ncclCommInitRankConfig), ncclResult_t(Comm*, int, ncclUniqueId, int, ncclConfig_t*)>);
static_assert(kIs<decltype(ncclCommInitRankScalable),
                  ncclResult_t(Comm*, int, int, int, ncclUniqueId*, ncclConfig_t*)>);
static_assert(kIs<decltype(ncclCommGetAsyncError), ncclResult_t(Comm, ncclResult_t*)>);
static_assert(kIs<decltype(ncclCommFinalize), ncclResult_t(Comm)>);
static_assert(kIs<decltype(ncclCommDestroy), ncclResult_t(Comm)>);
static_assert(kIs<decltype(ncclCommAbort), ncclResult_t(Comm)>);
static_assert(kIs<decltype(ncclAllReduce),
                  ncclResult_t(const void*, void*, Size, Type, ncclRedOp_t, Comm, cudaStream_t)>);
static_assert(kIs<decltype(ncclReduceScatter),
                  ncclResult_t(const void*, void*, Size, Type, ncclRedOp_t, Comm, cudaStream_t)>);
static_assert(
    kIs<decltype(ncclBroadcast), ncclResult_t(const void*, void*, Size, Type, int, Comm, cudaStream_t)>);
static_assert(kIs<decltype(ncclAllGather), ncclResult_t(const void*, void*, Size, Type, Comm, cudaStream_t)>);
static_assert(sizeof(ncclUniqueId) == NCCL_UNIQUE_ID_BYTES && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(kIs<decltype(ncclConfig_t::size), Size> && kIs<decltype(ncclConfig_t::magic), unsigned> &&
              kIs<decltype(ncclConfig_t::version), unsigned> && kIs<decltype(ncclConfig_t::blocking), int>);
constexpr ncclConfig_t kConfig = NCCL_CONFIG_INITIALIZER;
static_assert(kConfig.size == sizeof kConfig && kConfig.magic == 0xcafebeef &&
              kConfig.version == NCCL_VERSION_CODE && kConfig.blocking == NCCL_CONFIG_UNDEF_INT &&
              kConfig.maxCTAs == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(ncclConfig_t, maxCTAs) == offsetof(ncclConfig_t, blocking) + 3 * sizeof(int));

}  // namespace
