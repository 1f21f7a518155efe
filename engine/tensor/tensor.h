// Tensor: a shaped, typed handle to memory on one device. Tensors hold no gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// A block of bytes from a device's allocator, or of another owner. It is released with the last tensor that
/// refers to it. It does not change after construction, except for its bytes.
class Storage {
 public:
  /// Allocates an uninitialized block. Throws DeviceError if the device is out of memory.
  Storage(const DeviceContext& device, std::size_t bytes);
  /// Refers to `memory` of this device, and keeps a copy of the pointer.
  Storage(const DeviceContext& device, std::shared_ptr<void> memory);
  /// Releases the block.
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Returns the context of the device.
  const DeviceContext& context() const { return context_; }
  /// Returns the address of the block in the memory of the device; null for 0 bytes and on the
  /// meta device.
  void* data() const { return data_; }

  /// Notes that the work with this number of DeviceContext::enqueue_on_side_stream() writes the block.
  void written_on_side_stream(std::uint64_t number) { side_work_ = number; }
  /// Makes the compute stream wait for that work.
  void wait_for_side_stream() const {
    if (side_work_ != 0) context_.wait_for_side_stream(side_work_);
  }

 private:
  DeviceContext context_;
  std::uint64_t side_work_ = 0;
  std::size_t bytes_ = 0;  // from the allocator; 0 for memory of another owner
  std::shared_ptr<void> memory_;
  void* data_;
};

/// A handle to shared storage: an offset, a contiguous row-major shape and an element type. Copies of a
/// Tensor share storage; clone() allocates new storage. A default-constructed Tensor is undefined: on it,
/// only defined() and assignment are valid.
///
/// Several threads may hold copies and call the functions that enqueue no work, such as shape(). All others,
/// such as clone(), use the compute stream of the context, which belongs to one thread at a time. Every
/// function that allocates throws DeviceError if the device is out of memory.
class Tensor {
 public:
  /// Makes an undefined tensor.
  Tensor() = default;

  /// Returns a tensor with uninitialized elements.
  static Tensor empty(const Shape& shape, DType dtype, const DeviceContext& device);
  /// Returns a tensor with every element set to `value`.
  static Tensor full(const Shape& shape, double value, DType dtype, const DeviceContext& device);
  /// Returns a tensor of zeros.
  static Tensor zeros(const Shape& shape, DType dtype, const DeviceContext& device) {
    return full(shape, 0, dtype, device);
  }
  /// Copies `values`, in row-major order, into a new tensor. Throws UsageError unless their number is
  /// shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, const DeviceContext& device);
  /// Does the same for a vector.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, const DeviceContext& device) {
    return from(std::span<const T>(values), shape, device);
  }
  /// Returns a tensor whose elements are stored in `memory` on `device`, which has at least as many bytes and
  /// is aligned to the element size. The tensor keeps a copy of the pointer. Memory that is mapped for
  /// reading must not be written.
  static Tensor from_memory(std::shared_ptr<void> memory, const Shape& shape, DType dtype,
                            const DeviceContext& device);
  /// Returns an uninitialized tensor with the shape, dtype and device of `other`.
  static Tensor empty_like(const Tensor& other) {
    return empty(other.shape(), other.dtype(), other.context());
  }

  /// Returns whether the tensor has storage.
  bool defined() const { return storage_ != nullptr; }
  /// Returns the sizes of all axes.
  const Shape& shape() const { return shape_; }
  /// Returns the size of an axis; a negative `axis` counts from the last one. Does not check `axis`.
  std::int64_t size(int axis) const { return shape_[axis]; }
  /// Returns the number of elements.
  std::int64_t numel() const { return shape_.numel(); }
  /// Returns the size of the elements in bytes.
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  /// Returns the element type.
  DType dtype() const { return dtype_; }
  /// Returns the device of the storage.
  Device device() const { return context().device(); }
  /// Returns the stream and the memory of the tensor's device.
  const DeviceContext& context() const;
  /// Returns the compute stream of the tensor's context.
  Stream stream() const { return context().stream(); }

  /// Returns the view that kernels take. As with a pointer, a const Tensor still gives write access. If work
  /// of DeviceContext::enqueue_on_side_stream() writes the storage, makes the compute stream wait for it
  /// first.
  View view() const;
  /// Does the same without waiting, for work on a stream that waits itself (DeviceContext::wait_for_side_stream()), and for
  /// elements that no pending work of the side stream writes, as those of another gradient of a bucket.
  View view_without_waiting() const;
  /// Notes that the work with this number of DeviceContext::enqueue_on_side_stream() writes the tensor's
  /// storage.
  void written_on_side_stream(std::uint64_t number) const { storage_->written_on_side_stream(number); }
  /// Returns whether no other tensor uses this tensor's storage.
  bool is_only_owner() const { return storage_.use_count() == 1; }

  /// Returns a tensor of another shape that shares this storage. Throws UsageError unless numel() is equal.
  Tensor reshape(const Shape& shape) const;
  /// Returns rows [begin, end) of the first axis, sharing this storage. Throws UsageError if out of range.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  /// Returns the elements from flat index `offset` on as a tensor of `shape` that shares this storage, as a
  /// gradient shares its bucket. Throws UsageError if out of range.
  Tensor slice(std::int64_t offset, const Shape& shape) const;
  /// Returns a copy in new storage.
  Tensor clone() const;
  /// Returns a copy on `device`, or this tensor if it is there already.
  Tensor to(const DeviceContext& device) const;
  /// Returns a copy converted to `dtype`, or this tensor if it has that type already.
  Tensor to(DType dtype) const;
  /// Copies the elements of `source`, on any device, into this tensor's storage. Throws UsageError unless
  /// shape and dtype are equal.
  void copy_from(const Tensor& source) const;

  /// Blocks until the device has computed the values, then returns them in row-major order. Throws UsageError
  /// unless T is the element type.
  template <class T>
  std::vector<T> to_vector() const;
  /// Blocks until the device has computed the value of a one-element tensor, then returns it. Throws
  /// UsageError if the tensor has another number of elements.
  double item() const;

 private:
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;  // elements
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// A copy of the values that a tensor has once the work enqueued so far is done. Later work may overwrite the
/// tensor. On the CPU the copy is complete after construction. Only the constructor uses the compute stream,
/// so another thread may wait for the values.
class Readback {
 public:
  /// Enqueues the copy on the compute stream of the tensor's device and returns without waiting for it.
  explicit Readback(const Tensor& source);
  /// Blocks until the copy is complete.
  ~Readback();
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  /// Returns whether values() would return without blocking.
  bool ready() const { return copied_.reached(); }
  /// Blocks until the copy is complete, then returns the values in row-major order. Accepts any element type.
  std::vector<double> values() const;

 private:
  DeviceContext device_;
  Shape shape_;
  DType dtype_;
  std::size_t bytes_;
  void* host_;  // from the device's staging allocator
  Event copied_;
};

}  // namespace convoy
