// An array on a device, for tests that run one kernel on the CPU and on a GPU.
#pragma once

#include "kernels/runtime/device.h"
#include "tests/kernels/array.h"

namespace convoy::testing {

/// Owns the memory of its elements and nothing beside it, so that sanitizers see the first byte outside (with
/// CONVOY_MEMORY_CACHE=off). `offset` elements lie before them, for views that begin off the alignment.
template <class T>
class DeviceArray {
 public:
  /// Not initialised: what a kernel has to write.
  DeviceArray(const Device& device, Shape shape, std::size_t offset = 0)
      : device_(device),
        shape_(shape),
        offset_(offset),
        bytes_((offset + static_cast<std::size_t>(shape.numel())) * sizeof(T)),
        block_(static_cast<T*>(device.memory().allocate(bytes_))) {}
  DeviceArray(const Device& device, const Array<T>& values, std::size_t offset = 0)
      : DeviceArray(device, values.shape(), offset) {
    copy_bytes(Device::cpu(), values.view(), device_, view());
  }
  ~DeviceArray() { device_.memory().release(block_, bytes_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  View view() const { return {block_ != nullptr ? block_ + offset_ : nullptr, shape_, dtype_of<T>}; }
  GradView grad(Mode mode = Mode::write) const { return GradView(view(), mode); }
  /// Waits for the device.
  Array<T> values() const {
    Array<T> out(shape_);
    copy_bytes(device_, view(), Device::cpu(), out.view());
    return out;
  }

 private:
  Device device_;
  Shape shape_;
  std::size_t offset_;
  std::size_t bytes_;
  T* block_;
};

/// Sizes around which vectors, warps and blocks end.
inline constexpr std::int64_t kTailSizes[] = {0, 1, 31, 32, 33, 255, 257, 1025};

}  // namespace convoy::testing
