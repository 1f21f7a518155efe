// Arrays in the memory of a communicator's device.
#pragma once

#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::testing {

/// Blocks until all enqueued work has completed or failed.
inline void wait_for(dist::Communicator& comm) {
  Event end(comm.stream());
  end.record(comm.stream());
  end.wait();
}

/// An array in device memory, initialized from the host.
template <class T>
class DeviceValues {
 public:
  DeviceValues(const dist::Communicator& comm, std::vector<T> values)
      : device_(comm.context()), host_(std::move(values)) {
    data_ = device_.memory().allocate(bytes());
    copy_bytes(host_device_, ConstView(host_.data(), shape(), dtype_of<T>), device_, view());
  }
  ~DeviceValues() { device_.memory().release(data_, bytes()); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  View view() const { return {data_, shape(), dtype_of<T>}; }
  /// Waits for all enqueued work, throws its errors, and returns a copy of the array.
  const std::vector<T>& read(dist::Communicator& comm) {
    wait_for(comm);
    comm.check_errors();
    copy_bytes(device_, view(), host_device_, View{host_.data(), shape(), dtype_of<T>});
    return host_;
  }

 private:
  Shape shape() const { return {static_cast<std::int64_t>(host_.size())}; }
  std::size_t bytes() const { return host_.size() * sizeof(T); }

  DeviceContext device_;
  DeviceContext host_device_ = DeviceContext::create_cpu({.threads = 1});
  std::vector<T> host_;
  void* data_ = nullptr;
};

}  // namespace convoy::testing
