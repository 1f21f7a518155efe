// What is behind a Device handle: one implementation a device kind. For the sources that make devices.
#pragma once

#include <memory>
#include <string>

#include "kernels/runtime/device.h"

namespace convoy {

struct Device::State {
  State(DeviceKind device_kind, int device_index, std::unique_ptr<MemorySource> source, std::size_t limit)
      : kind(device_kind),
        index(device_index),
        name(source->name()),
        memory(std::move(source), limit, CachingAllocator::policy_from_environment()) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  virtual Stream stream() = 0;
  virtual CachingAllocator& staging() = 0;
  virtual void synchronize() = 0;

  const DeviceKind kind;
  const int index;
  const std::string name;
  CachingAllocator memory;
};

}  // namespace convoy
