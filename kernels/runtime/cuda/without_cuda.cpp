// The CUDA functions of a build without CUDA. Builds with CUDA compile device.cpp instead.
#include <cstring>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/facts.h"
#include "convoy/kernels/runtime/device_context_state.h"

namespace convoy {

CudaAvailability cuda_availability() {
  return {.count = 0, .reason = "this build has no CUDA; use the CPU, or configure with the cuda preset"};
}

CudaFacts cuda_facts() { return {.reason = cuda_availability().reason}; }

std::shared_ptr<DeviceContext::State> DeviceContext::make_cuda(int index, const CudaOptions&) {
  fail<DeviceError>("cuda:{}: {}", index, cuda_availability().reason);
}

void copy_bytes(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device, View to) {
  if (copies_data(from_device, to_device) && from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
}

void copy_bytes_async(const DeviceContext& from_device, ConstView from, const DeviceContext& to_device,
                      View to) {
  copy_bytes(from_device, from, to_device, to);
}

}  // namespace convoy
