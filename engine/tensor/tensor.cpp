#include "convoy/engine/tensor/tensor.h"

#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {

Storage::Storage(const DeviceContext& device, std::size_t bytes)
    : context_(device),
      bytes_(bytes),
      data_(device.kind() == DeviceKind::meta ? nullptr : context_.memory().allocate(bytes)) {}

Storage::Storage(const DeviceContext& device, std::shared_ptr<void> memory)
    : context_(device), memory_(std::move(memory)), data_(memory_.get()) {}

Storage::~Storage() {
  if (memory_ == nullptr) context_.memory().release(data_, bytes_);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, const DeviceContext& device) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<Storage>(device, tensor.bytes());
  return tensor;
}

Tensor Tensor::from_memory(std::shared_ptr<void> memory, const Shape& shape, DType dtype,
                           const DeviceContext& device) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.storage_ = std::make_shared<Storage>(device, std::move(memory));
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, const DeviceContext& device) {
  Tensor tensor = empty(shape, dtype, device);
  on(tensor.stream(), [&](auto& s) { kernels::fill(s, value, tensor.view()); });
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, const DeviceContext& device) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(),
        "Tensor::from: {} values for shape {}, expected {}", values.size(), shape.text(), shape.numel());
  Tensor tensor = empty(shape, dtype_of<T>, device);
  copy_bytes(Device::cpu(), ConstView(values.data(), shape, dtype_of<T>), device, tensor.view());
  return tensor;
}

template Tensor Tensor::from(std::span<const double>, const Shape&, const DeviceContext&);
template Tensor Tensor::from(std::span<const float>, const Shape&, const DeviceContext&);
template Tensor Tensor::from(std::span<const float16>, const Shape&, const DeviceContext&);
template Tensor Tensor::from(std::span<const bfloat16>, const Shape&, const DeviceContext&);
template Tensor Tensor::from(std::span<const std::int32_t>, const Shape&, const DeviceContext&);
template Tensor Tensor::from(std::span<const std::uint8_t>, const Shape&, const DeviceContext&);

const DeviceContext& Tensor::context() const {
  check(defined(), "undefined tensor used: expected a tensor with storage");
  return storage_->context();
}

View Tensor::view() const {
  check(defined(), "undefined tensor used: expected a tensor with storage");
  storage_->wait_for_side_stream();
  return view_without_waiting();
}

View Tensor::view_without_waiting() const {
  auto* bytes = static_cast<std::byte*>(storage_->data());
  return {bytes == nullptr ? nullptr : bytes + static_cast<std::size_t>(offset_) * size_of(dtype_), shape_,
          dtype_};
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "reshape: {} to {}: {} elements, expected {}", shape_.text(), shape.text(),
        shape.numel(), numel());
  Tensor tensor = *this;
  tensor.shape_ = shape;
  return tensor;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  check(shape_.rank() > 0 && 0 <= begin && begin <= end && end <= size(0),
        "rows: range [{}, {}) is not within tensor {}", begin, end, shape_.text());
  std::vector<std::int64_t> sizes(shape_.sizes().begin(), shape_.sizes().end());
  sizes[0] = end - begin;
  Tensor tensor = *this;
  tensor.shape_ = Shape(sizes);
  tensor.offset_ += size(0) > 0 ? begin * (numel() / size(0)) : 0;
  return tensor;
}

Tensor Tensor::slice(std::int64_t offset, const Shape& shape) const {
  check(offset >= 0 && offset + shape.numel() <= numel(), "slice: {} elements at offset {} exceed tensor {}",
        shape.numel(), offset, shape_.text());
  Tensor tensor = *this;
  tensor.shape_ = shape;
  tensor.offset_ += offset;
  return tensor;
}

Tensor Tensor::clone() const {
  Tensor copy = empty_like(*this);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(const DeviceContext& target) const {
  if (device() == target.device()) return *this;
  Tensor copy = empty(shape_, dtype_, target);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result = empty(shape_, dtype, context());
  on(stream(), [&](auto& s) { kernels::cast(s, view(), result.view()); });
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.shape() == shape_ && source.dtype() == dtype_, "copy_from: source is {} {}, expected {} {}",
        to_string(source.dtype()), source.shape().text(), to_string(dtype_), shape_.text());
  copy_bytes(source.context(), source.view(), context(), view());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  check(dtype_ == dtype_of<T>, "to_vector: tensor has element type {}, requested {}", to_string(dtype_),
        to_string(dtype_of<T>));
  std::vector<T> values(static_cast<std::size_t>(numel()));
  copy_bytes(context(), view(), Device::cpu(), View{values.data(), shape_, dtype_});
  return values;
}

template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<float16> Tensor::to_vector() const;
template std::vector<bfloat16> Tensor::to_vector() const;
template std::vector<std::int32_t> Tensor::to_vector() const;
template std::vector<std::uint8_t> Tensor::to_vector() const;

double Tensor::item() const {
  check(numel() == 1, "item: tensor {} has {} elements, expected 1", shape_.text(), numel());
  return to(DType::f64).to_vector<double>()[0];
}

Readback::Readback(const Tensor& source)
    : device_(source.context()),
      shape_(source.shape()),
      dtype_(source.dtype()),
      bytes_(source.bytes()),
      host_(device_.staging().allocate(bytes_)),
      copied_(Event::timed(device_.stream())) {
  copy_bytes_async(device_, source.view(), Device::cpu(), View{host_, shape_, dtype_});
  copied_.record();
}

Readback::~Readback() {
  try {
    copied_.wait();
  } catch (const Error&) {
    // The device is lost, and its other operations report that. It will not write to host_.
  }
  device_.staging().release(host_, bytes_);
}

std::vector<double> Readback::values() const {
  copied_.wait();
  std::vector<double> values(static_cast<std::size_t>(shape_.numel()));
  dispatch(kAllTypes, dtype_, [&](auto zero) {
    using T = decltype(zero);
    const T* from = static_cast<const T*>(host_);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = converted<double>(from[i]);
  });
  return values;
}

}  // namespace convoy
