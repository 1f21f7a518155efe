#include "kernels/runtime/device.h"

#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/runtime/device_state.h"

namespace convoy {
namespace {

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

std::shared_ptr<Device::State> Device::make_cpu(const CpuOptions& options,
                                                std::unique_ptr<MemorySource> source) {
  struct CpuState final : State {
    CpuState(const CpuOptions& chosen, std::unique_ptr<MemorySource> from)
        : State(DeviceKind::cpu, 0, "cpu", std::move(from), chosen.memory_limit),
          compute({.threads = chosen.threads, .memory = &memory}) {}
    Stream stream() override { return std::ref(compute); }
    void synchronize() override { compute.synchronize(); }

    CpuStream compute;
  };
  return std::make_shared<CpuState>(options, std::move(source));
}

Device Device::cpu(const CpuOptions& options) {
  CpuOptions limited = options;
  if (limited.memory_limit == 0) limited.memory_limit = physical_memory();
  return Device(make_cpu(limited, host_memory()));
}

Device Device::cuda(int index, const CudaOptions& options) {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) fail<DeviceError>("cuda:{}: {}", index, gpus.reason);
  if (index < 0 || index >= gpus.count)
    fail<DeviceError>(
        "cuda:{}: no such GPU; this process sees {}, cuda:0 to cuda:{} (see CUDA_VISIBLE_DEVICES)", index,
        gpus.count, gpus.count - 1);
  return make_cuda(index, options);
}

Device Device::best(int local_rank) { return cuda_availability().count > 0 ? cuda(local_rank) : cpu(); }

Device Device::parse(std::string_view text, const CpuOptions& options, const CudaOptions& cuda_options) {
  if (text == "cpu") return cpu(options);
  if (text == "auto") return cuda_availability().count > 0 ? cuda(0, cuda_options) : cpu(options);
  if (text == "cuda") return cuda(0, cuda_options);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    if (!digits.empty() && digits.size() <= 4 &&
        digits.find_first_not_of("0123456789") == std::string_view::npos)
      return cuda(std::stoi(std::string(digits)), cuda_options);
  }
  fail<UsageError>("--device: found '{}', expected auto, cpu, cuda or cuda:N", text);
}

DeviceKind Device::kind() const { return state_->kind; }
int Device::index() const { return state_->index; }
std::string Device::name() const { return state_->name; }
std::string Device::hardware() const { return state_->hardware(); }
std::string Device::uuid() const { return state_->uuid(); }
int Device::compute_capability() const { return state_->compute_capability(); }
Stream Device::stream() const { return state_->stream(); }
CachingAllocator& Device::memory() const { return state_->memory; }
Device Device::host() const { return state_->host ? Device(state_->host) : *this; }
AlgorithmCache& Device::algorithm_cache() const { return state_->algorithms; }
void Device::set_autotune(bool enabled) const { state_->set_autotune(enabled); }
void Device::synchronize() const { state_->synchronize(); }

}  // namespace convoy
