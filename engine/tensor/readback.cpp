#include "convoy/engine/tensor/readback.h"

#include "convoy/kernels/base/convert.h"

namespace convoy {

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
