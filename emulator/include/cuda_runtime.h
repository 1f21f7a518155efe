// The emulator's replacement of the device-side CUDA headers: qualifiers, built-in variables, warp and block
// operations, atomics and kernel launches. Names have the meaning of the CUDA C++ Programming Guide.
//
// A kernel is an ordinary function here, and each CUDA thread runs it on its own fiber
// (emulator/runtime/block.h). Two things are missing here: floating-point atomics, whose order is
// not repeatable, and __shared__ except for "extern" arrays. Programs that cuemu translates have both.
#pragma once

#include <math.h>

#include <cuda_runtime_api.h>
#include <ptx.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// An error for other declarations than "extern": they would be private to each thread. cuemu translates them.
#define __shared__ __attribute__((weak))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return (cudaFuncSetAttribute)(reinterpret_cast<const void*>(kernel), attribute, value);
}

// Values for the running CUDA thread. The kernels of all host threads run one at a time.
inline constinit uint3 threadIdx{};
inline constinit uint3 blockIdx{};
inline constinit dim3 blockDim{};
inline constinit dim3 gridDim{};
inline constexpr int warpSize = 32;

namespace convoy::emulator {

/// Blocks the CUDA thread until all threads of the block have called it at the same place.
void block_barrier(Where where);
// Clusters of blocks, on behalf of the CUDA thread. A launch without clusters has clusters of one block.
void cluster_arrive(Where where);
void cluster_wait(Where where);
/// Returns the address in block `rank` of the cluster of what `shared` is in the running one.
void* map_shared(void* shared, unsigned rank, Where where);
/// Returns the rank of the block whose shared memory has an address.
unsigned rank_of_shared(const void* shared, Where where);
dim3 cluster_dim();
uint3 index_in_cluster();
unsigned rank_in_cluster();
/// Blocks the CUDA thread until all lanes of the mask have called it, and orders their memory accesses.
void warp_barrier(unsigned mask, Where where);
/// Does the same without an order of memory accesses. Returns the `bits` of lane `source`. A lane outside of
/// the mask is reported, since its value is undefined on a GPU.
std::uint64_t warp_exchange(unsigned mask, std::uint64_t bits, unsigned source, Where where);
/// Does the same. Returns a bit for each lane of the mask, whether it has passed true.
unsigned warp_vote(unsigned mask, bool predicate, Where where);

/// A lane, and the first and last lane of its segment. `width`, a power of two, is the number of lanes per
/// segment.
struct Segment {
  unsigned lane, first, last;
};
Segment segment_of_this_lane(int width, Where where);

/// Counts an atomic operation of the CUDA thread, if accesses are counted. `next` is the address of its next
/// instruction.
void count_atomic(const void* address, std::size_t bytes, const void* next);
/// Orders the memory accesses of the CUDA thread, for the check of accesses of different blocks.
void fence();
/// Return the time of the GPU in nanoseconds, and advance it.
long long device_nanoseconds();
void advance_device(unsigned nanoseconds);
/// Ends the kernel with a report.
[[noreturn]] void trap(Where where);

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

/// Returns the `value` of lane `source` of the mask.
template <class T>
T shuffle(unsigned mask, T value, unsigned source, Where where) {
  const std::uint64_t bits = warp_exchange(mask, to_bits(value), source, where);
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

}  // namespace convoy::emulator

inline void __syncthreads(convoy::emulator::Where where = convoy::emulator::Where::current()) {
  convoy::emulator::block_barrier(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       convoy::emulator::Where where = convoy::emulator::Where::current()) {
  convoy::emulator::warp_barrier(mask, where);
}

// Thread block clusters. The barrier has two parts; threads that have ended count as arrived.
inline void __cluster_barrier_arrive(convoy::emulator::Where where = convoy::emulator::Where::current()) {
  convoy::emulator::cluster_arrive(where);
}
inline void __cluster_barrier_wait(convoy::emulator::Where where = convoy::emulator::Where::current()) {
  convoy::emulator::cluster_wait(where);
}
inline void* __cluster_map_shared_rank(const void* shared, unsigned rank,
                                       convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::map_shared(const_cast<void*>(shared), rank, where);
}
inline unsigned __cluster_query_shared_rank(
    const void* shared, convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::rank_of_shared(shared, where);
}
inline dim3 __clusterDim() { return convoy::emulator::cluster_dim(); }
inline unsigned __clusterSizeInBlocks() { return __clusterDim().x * __clusterDim().y * __clusterDim().z; }
inline dim3 __clusterRelativeBlockIdx() { return convoy::emulator::index_in_cluster(); }
inline unsigned __clusterRelativeBlockRank() { return convoy::emulator::rank_in_cluster(); }

// The four shuffles. If the source lane is outside the segment, the result is the lane's own value. Only
// `xor` may read from earlier segments.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              convoy::emulator::Where where = convoy::emulator::Where::current()) {
  const auto [lane, first, last] = convoy::emulator::segment_of_this_lane(width, where);
  return convoy::emulator::shuffle(mask, value, first + (static_cast<unsigned>(source) & (last - first)),
                                   where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   convoy::emulator::Where where = convoy::emulator::Where::current()) {
  const auto [lane, first, last] = convoy::emulator::segment_of_this_lane(width, where);
  return convoy::emulator::shuffle(mask, value, delta <= last - lane ? lane + delta : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 convoy::emulator::Where where = convoy::emulator::Where::current()) {
  const auto [lane, first, last] = convoy::emulator::segment_of_this_lane(width, where);
  return convoy::emulator::shuffle(mask, value, delta <= lane - first ? lane - delta : lane, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  convoy::emulator::Where where = convoy::emulator::Where::current()) {
  const auto [lane, first, last] = convoy::emulator::segment_of_this_lane(width, where);
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  return convoy::emulator::shuffle(mask, value, source <= last ? source : lane, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return convoy::emulator::warp_vote(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate,
                      convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return __ballot_sync(mask, predicate, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      convoy::emulator::Where where = convoy::emulator::Where::current()) {
  return __ballot_sync(mask, predicate, where) == mask ? 1 : 0;
}

// Atomics. A thread runs until it waits, so a plain read and write is atomic. Each returns the old value.
// They are not inlined, so that the counter of accesses gets the address of the call.
#define CONVOY_EMULATED_ATOMIC __attribute__((noinline, no_sanitize("thread")))
template <class T>
requires std::is_integral_v<T> CONVOY_EMULATED_ATOMIC T atomicAdd(T* address, std::type_identity_t<T> value) {
  convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = static_cast<T>(old + value);
  return old;
}
template <class T>
requires std::is_integral_v<T> CONVOY_EMULATED_ATOMIC T atomicMax(T* address, std::type_identity_t<T> value) {
  convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = old < value ? value : old;
  return old;
}
template <class T>
requires std::is_integral_v<T> CONVOY_EMULATED_ATOMIC T atomicOr(T* address, std::type_identity_t<T> value) {
  convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = static_cast<T>(old | value);
  return old;
}
template <class T>
requires std::is_integral_v<T> CONVOY_EMULATED_ATOMIC T atomicExch(T* address,
                                                                   std::type_identity_t<T> value) {
  convoy::emulator::count_atomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = value;
  return old;
}
inline CONVOY_EMULATED_ATOMIC unsigned atomicInc(unsigned* address, unsigned last) {
  convoy::emulator::count_atomic(address, sizeof(unsigned), __builtin_return_address(0));
  const unsigned old = *address;
  *address = old >= last ? 0 : old + 1;
  return old;
}
inline void __threadfence() { convoy::emulator::fence(); }
enum { __NV_ATOMIC_ACQ_REL = 4 };
enum { __NV_THREAD_SCOPE_DEVICE = 3 };
/// Of the orders and scopes, those that the kernels use.
inline CONVOY_EMULATED_ATOMIC unsigned __nv_atomic_fetch_add(unsigned* address, unsigned value, int, int) {
  convoy::emulator::fence();
  convoy::emulator::count_atomic(address, sizeof(unsigned), __builtin_return_address(0));
  const unsigned old = *address;
  *address = old + value;
  convoy::emulator::fence();
  return old;
}
#undef CONVOY_EMULATED_ATOMIC
// The clock of an emulated GPU has 1 GHz. A thread that sleeps advances it instead of waiting.
/// A division without the correct rounding of `/`; here with it.
inline float __fdividef(float a, float b) { return a / b; }

inline long long clock64() { return convoy::emulator::device_nanoseconds(); }
inline void __nanosleep(unsigned nanoseconds) { convoy::emulator::advance_device(nanoseconds); }
inline void __trap(convoy::emulator::Where where = convoy::emulator::Where::current()) {
  convoy::emulator::trap(where);
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};

/// Kernels of a stream run one after another, even those that may start early.
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace convoy::emulator {
/// A kernel with its arguments. `run` runs one thread of it.
struct KernelCall {
  std::shared_ptr<void> kernel;
  void (*run)(void* kernel);
};
/// Returns the call of a function without arguments. The accesses on the way to it are not the kernel's, so
/// they are not compiled for counting.
template <class F>
KernelCall kernel_call(F f) {
  return {std::make_shared<F>(std::move(f)),
          [](void* kernel) __attribute__((no_sanitize("thread"))){(*static_cast<F*>(kernel))();
}
};
}

/// Queues a kernel, or returns the error why it cannot start. `kernel` identifies it, or `name` does.
cudaError_t submit(const cudaLaunchConfig_t& config, const void* kernel, KernelCall call,
                   const char* name = "");
}  // namespace convoy::emulator

/// Launches `kernel`. The arguments are converted to its parameter types and copied, as in CUDA.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return convoy::emulator::submit(
      *config, reinterpret_cast<const void*>(kernel), convoy::emulator::kernel_call([
        kernel, ... values = static_cast<std::decay_t<Parameters>>(std::forward<Arguments>(arguments))
      ]() __attribute__((no_sanitize("thread"))) { kernel(values...); }));
}

/// Returns how many clusters of this launch can be active at once on an H100 without other work, as far as threads and
/// shared memory decide; 0 if it cannot be launched.
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                           const cudaLaunchConfig_t* config);
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, void (*kernel)(Parameters...),
                                           const cudaLaunchConfig_t* config) {
  return cudaOccupancyMaxActiveClusters(clusters, reinterpret_cast<const void*>(kernel), config);
}
