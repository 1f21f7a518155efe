// The streams and memory behind a DeviceContext, with one implementation per kind of device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// Returns whether a copy between the devices moves bytes, which one to the meta device does not. Throws
/// UsageError for a copy from the meta device to another one, since it has no data.
bool copies_data(const DeviceContext& from, const DeviceContext& to);

/// What the copies of a DeviceContext share.
struct DeviceContext::State {
  State(Device of, std::shared_ptr<CachingAllocator> allocator) : device(of), memory(std::move(allocator)) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  virtual Stream stream() = 0;
  virtual void synchronize() {}
  virtual std::uint64_t enqueue_on_side_stream(std::function<void(const Stream&)> work) {
    work(stream());
    return 0;
  }
  virtual void wait_for_side_stream(std::uint64_t /*number*/) {}
  virtual void wait_for_side_stream(const Stream& /*stream*/) {}
  virtual void join_side_stream() {}
  virtual void set_autotune(bool) {}
  virtual std::vector<std::string> take_warnings() { return {}; }
  virtual std::string hardware() const { return ""; }
  virtual std::string uuid() const { return ""; }
  virtual int compute_capability() const { return 0; }

  const Device device;
  std::shared_ptr<State> host;  // what DeviceContext::host() returns; null on the CPU, which returns itself
  const std::shared_ptr<CachingAllocator> memory;
  AlgorithmCache algorithms;
};

}  // namespace convoy
