#include "kernels/runtime/device.h"

#include <unistd.h>

#include <cstring>

#include "kernels/runtime/check.h"

namespace convoy {

struct Device::State {
  DeviceKind kind;
  int index;
  CpuStream stream;
  CachingAllocator memory;

  explicit State(const CpuOptions& options)
      : kind(DeviceKind::cpu),
        index(0),
        stream({.threads = options.threads}),
        memory(host_memory(), options.memory_limit > 0 ? options.memory_limit : physical_memory()) {}

  static std::size_t physical_memory() {
    return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  }
};

Device Device::cpu(const CpuOptions& options) { return Device(std::make_shared<State>(options)); }

Device Device::cuda(int index) {
  fail<DeviceError>("cuda:{}: this build has no CUDA; use --device cpu, or configure with the cuda preset", index);
}

Device Device::best(int) { return cpu(); }

Device Device::parse(std::string_view text, const CpuOptions& options) {
  if (text == "cpu") return cpu(options);
  if (text == "auto") return cpu(options);
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    if (!digits.empty() && digits.size() <= 4 && digits.find_first_not_of("0123456789") == std::string_view::npos)
      return cuda(std::stoi(std::string(digits)));
  }
  fail<UsageError>("--device: found '{}', expected auto, cpu, cuda or cuda:N", text);
}

DeviceKind Device::kind() const { return state_->kind; }
int Device::index() const { return state_->index; }
std::string Device::name() const { return "cpu"; }
Stream Device::stream() const { return std::ref(state_->stream); }
CachingAllocator& Device::memory() const { return state_->memory; }
void Device::synchronize() const { state_->stream.synchronize(); }

void copy_bytes(const Device&, ConstView from, const Device&, View to) {
  if (from.bytes() > 0) std::memcpy(to.data, from.data, from.bytes());
}

}  // namespace convoy
