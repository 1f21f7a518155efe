// An array in the memory of a device, for tests that run a kernel on the CPU and on a GPU.
#pragma once

#include "convoy/kernels/runtime/device_context.h"
#include "tests/kernels/array.h"

namespace convoy::testing {

/// An owning array without padding, so that sanitizers detect the first byte out of bounds (with
/// CONVOY_MEMORY_CACHE=off). The data begins `offset` elements after an aligned address.
template <class T>
class DeviceArray {
 public:
  /// Creates an uninitialized array.
  DeviceArray(const DeviceContext& device, Shape shape, std::size_t offset = 0)
      : device_(device),
        shape_(shape),
        offset_(offset),
        bytes_((offset + static_cast<std::size_t>(shape.numel())) * sizeof(T)),
        block_(static_cast<T*>(device.memory().allocate(bytes_))) {}
  /// Creates a copy of `values`.
  DeviceArray(const DeviceContext& device, const Array<T>& values, std::size_t offset = 0)
      : DeviceArray(device, values.shape(), offset) {
    copy_bytes(Device::cpu(), values.view(), device_, view());
  }
  ~DeviceArray() { device_.memory().release(block_, bytes_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  View view() const { return {block_ != nullptr ? block_ + offset_ : nullptr, shape_, dtype_of<T>}; }
  GradView grad(GradMode mode = GradMode::overwrite) const { return GradView(view(), mode); }
  /// Returns a copy on the host. Blocks until the device has computed it.
  Array<T> values() const {
    Array<T> out(shape_);
    copy_bytes(device_, view(), Device::cpu(), out.view());
    return out;
  }

 private:
  DeviceContext device_;
  Shape shape_;
  std::size_t offset_;
  std::size_t bytes_;
  T* block_;
};

/// Sizes around the boundaries of vectors, warps and thread blocks.
inline constexpr std::int64_t kTailSizes[] = {0, 1, 31, 32, 33, 255, 257, 1025};

}  // namespace convoy::testing
