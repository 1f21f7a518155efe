// What is behind a Device handle: one implementation a device kind. For the sources that make devices.
#pragma once

#include <memory>
#include <string>

#include "kernels/runtime/device.h"

namespace convoy {

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
  virtual void set_may_time(bool) {}
  virtual std::string hardware() const { return ""; }
  virtual std::string uuid() const { return ""; }
  virtual int compute_capability() const { return 0; }

  const DeviceKind kind;
  const int index;
  const std::string name;
  std::shared_ptr<State> host;  // a GPU's partner, whose memory is staging(); null for the CPU, its own
  CachingAllocator memory;
  TimedChoices choices;
};

}  // namespace convoy
