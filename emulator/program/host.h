// Functions of the host that emulator/include leaves out.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

inline constexpr unsigned cudaStreamDefault = 0;
inline constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
inline constexpr unsigned cudaMemAttachGlobal = 1;
inline constexpr unsigned cudaEventBlockingSync = 1;

cudaError_t cudaPeekAtLastError();
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaRuntimeGetVersion(int* version);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t* event);
inline cudaError_t cudaEventRecord(cudaEvent_t event) { return cudaEventRecord(event, nullptr); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
  return cudaStreamWaitEvent(stream, event, 0);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* to, int value, std::size_t bytes);
cudaError_t cudaMallocManaged(void** block, std::size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocHost(void** block, std::size_t bytes);
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

namespace convoy::emulator {
/// cudaFuncSetAttribute for launches that know a kernel's name alone, as the program writes it there.
void set_named_attribute(const char* arguments, cudaFuncAttribute attribute, int value);
/// Names an array in messages: "d_x" for the argument "&d_x" or "(void**)&d_x".
void name_array(const void* begin, const char* argument);
}  // namespace convoy::emulator

namespace cuemu {

/// Calls one of the functions that allocate with a pointer of any type, and names the array.
template <class T, class... More>
cudaError_t allocate(cudaError_t (*allocator)(void**, std::size_t, More...), const char* argument,
                     T** pointer, std::size_t bytes, std::type_identity_t<More>... more) {
  const cudaError_t status = allocator(reinterpret_cast<void**>(pointer), bytes, more...);
  if (status == cudaSuccess) convoy::emulator::name_array(*pointer, argument);
  return status;
}
template <class Kernel>
cudaError_t set_attribute(const char* arguments, Kernel kernel, cudaFuncAttribute attribute, int value) {
  const cudaError_t status = cudaFuncSetAttribute(kernel, attribute, value);
  if (status == cudaSuccess) convoy::emulator::set_named_attribute(arguments, attribute, value);
  return status;
}
inline cudaError_t malloc_managed(void** block, std::size_t bytes) { return cudaMallocManaged(block, bytes); }

}  // namespace cuemu

// Macros, because they have the text of the argument.
#define cudaMalloc(pointer, bytes) cuemu::allocate(&(cudaMalloc), #pointer, pointer, bytes)
#define cudaMallocHost(pointer, bytes) cuemu::allocate(&(cudaMallocHost), #pointer, pointer, bytes)
#define cudaHostAlloc(pointer, bytes, flags) \
  cuemu::allocate(&(cudaHostAlloc), #pointer, pointer, bytes, flags)
#define cudaFuncSetAttribute(...) cuemu::set_attribute(#__VA_ARGS__, __VA_ARGS__)
#define cudaMallocManaged(pointer, ...) \
  cuemu::allocate(&cuemu::malloc_managed, #pointer, pointer, __VA_ARGS__)

/// Return the address and the size of a variable of the device.
template <class T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = const_cast<std::remove_const_t<T>*>(&symbol);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}
/// Copy to and from a variable of the device.
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, kind);
}
