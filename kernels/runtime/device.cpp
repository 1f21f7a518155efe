#include "kernels/runtime/device.h"

#include <unistd.h>

#include "kernels/runtime/check.h"
#include "kernels/runtime/device_state.h"

namespace convoy {
namespace {

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

Device Device::cpu(const CpuOptions& options) {
  struct CpuState final : State {
    explicit CpuState(const CpuOptions& chosen)
        : State(DeviceKind::cpu, 0, host_memory(),
                chosen.memory_limit > 0 ? chosen.memory_limit : physical_memory()),
          compute({.threads = chosen.threads}) {}
    Stream stream() override { return std::ref(compute); }
    CachingAllocator& staging() override { return memory; }
    void synchronize() override { compute.synchronize(); }

    CpuStream compute;
  };
  return Device(std::make_shared<CpuState>(options));
}

Device Device::cuda(int index) {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) fail<DeviceError>("cuda:{}: {}", index, gpus.reason);
  if (index < 0 || index >= gpus.count)
    fail<DeviceError>(
        "cuda:{}: no such GPU; this process sees {}, cuda:0 to cuda:{} (CUDA_VISIBLE_DEVICES decides)", index,
        gpus.count, gpus.count - 1);
  return make_cuda(index);
}

Device Device::best(int local_rank) { return cuda_availability().count > 0 ? cuda(local_rank) : cpu(); }

Device Device::parse(std::string_view text, const CpuOptions& options) {
  if (text == "cpu") return cpu(options);
  if (text == "auto") return cuda_availability().count > 0 ? cuda(0) : cpu(options);
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    if (!digits.empty() && digits.size() <= 4 &&
        digits.find_first_not_of("0123456789") == std::string_view::npos)
      return cuda(std::stoi(std::string(digits)));
  }
  fail<UsageError>("--device: found '{}', expected auto, cpu, cuda or cuda:N", text);
}

DeviceKind Device::kind() const { return state_->kind; }
int Device::index() const { return state_->index; }
std::string Device::name() const { return state_->name; }
Stream Device::stream() const { return state_->stream(); }
CachingAllocator& Device::memory() const { return state_->memory; }
CachingAllocator& Device::staging() const { return state_->staging(); }
void Device::synchronize() const { state_->synchronize(); }

}  // namespace convoy
