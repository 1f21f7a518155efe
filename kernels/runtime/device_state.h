// The context behind a Device handle, with one implementation per kind of device.
#pragma once

#include <memory>
#include <string>

#include "kernels/runtime/device.h"

namespace convoy {

/// The context that the copies of a Device handle share.
struct Device::State {
  State(DeviceKind device_kind, int device_index, std::string device_name,
        std::unique_ptr<MemorySource> source, std::size_t limit)
      : kind(device_kind),
        index(device_index),
        name(std::move(device_name)),
        memory(std::move(source), limit, CachingAllocator::policy_from_environment()) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  virtual Stream stream() = 0;
  virtual void synchronize() = 0;
  virtual void set_autotune(bool) {}
  virtual std::string hardware() const { return ""; }
  virtual std::string uuid() const { return ""; }
  virtual int compute_capability() const { return 0; }

  const DeviceKind kind;
  const int index;
  const std::string name;
  std::shared_ptr<State> host;  // what Device::host() returns; null on the CPU, which returns itself
  CachingAllocator memory;
  AlgorithmCache algorithms;
};

}  // namespace convoy
