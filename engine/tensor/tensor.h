// Tensor: owned bytes on one device. Knows no gradient.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/runtime/device.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// Bytes from a device's allocator; given back when the last tensor on them goes.
class Storage {
 public:
  Storage(const Device& device, std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const Device& device() const { return device_; }
  void* data() const { return data_; }

 private:
  Device device_;
  std::size_t bytes_;
  void* data_;
};

/// A handle: shared storage, an offset, a contiguous row-major shape, an element type. Copies share bytes;
/// clone() does not. A default-constructed Tensor is undefined: defined() is false and nothing else may be
/// asked.
class Tensor {
 public:
  Tensor() = default;

  static Tensor empty(const Shape& shape, DType dtype, const Device& device);  // uninitialised
  static Tensor full(const Shape& shape, double value, DType dtype, const Device& device);
  static Tensor zeros(const Shape& shape, DType dtype, const Device& device) {
    return full(shape, 0, dtype, device);
  }
  /// Copies values, in row-major order; their number must be shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, const Device& device);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, const Device& device) {
    return from(std::span<const T>(values), shape, device);
  }
  /// Like another in shape, dtype and device.
  static Tensor empty_like(const Tensor& other) {
    return empty(other.shape(), other.dtype(), other.device());
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int axis) const { return shape_[axis]; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  const Device& device() const;
  Stream stream() const { return device().stream(); }

  /// What kernels see. Constness of the handle says nothing of the bytes, as with a pointer.
  View view() const;
  /// Do both tensors' handles, and no others, share these bytes?
  bool shares_storage_with(const Tensor& other) const { return storage_ == other.storage_; }
  bool is_only_owner() const { return storage_.use_count() == 1; }

  Tensor reshape(const Shape& shape) const;                 // shares bytes; same numel
  Tensor rows(std::int64_t begin, std::int64_t end) const;  // shares bytes; a range of the first axis
  /// Shares bytes: a flat range of elements, seen as `shape`. How a gradient lives in its bucket.
  Tensor slice(std::int64_t offset, const Shape& shape) const;
  Tensor clone() const;
  Tensor to(const Device& device) const;  // itself where it is there already
  Tensor to(DType dtype) const;           // itself where it has it already
  /// Copies the bytes of a tensor of equal shape and dtype, from any device, into this one's.
  void copy_from(const Tensor& source) const;

  /// Copies to the host; T must be the element type. Waits for the device.
  template <class T>
  std::vector<T> to_vector() const;
  /// The value of a one-element tensor of any type. Waits for the device.
  double item() const;

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // elements
  Shape shape_;
  DType dtype_ = DType::f32;
};

}  // namespace convoy
