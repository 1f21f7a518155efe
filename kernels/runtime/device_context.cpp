#include "convoy/kernels/runtime/device_context.h"

#include <map>
#include <mutex>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/runtime/device.h"
#include "convoy/kernels/runtime/device_context_state.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy {
namespace {

std::shared_ptr<CachingAllocator> host_allocator(std::size_t limit) {
  static const std::size_t of_host = host_memory_limit();  // read once: the limit is in several files
  return std::make_shared<CachingAllocator>(host_memory(), limit == 0 ? of_host : limit,
                                            CachingAllocator::policy_from_environment());
}

/// The memory of the meta device, which holds no bytes.
class NoMemory final : public MemorySource {
 public:
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  std::string name() const override { return "meta"; }
};

}  // namespace

bool copies_data(const DeviceContext& from, const DeviceContext& to) {
  if (to.kind() == DeviceKind::meta) return false;
  check(from.kind() != DeviceKind::meta,
        "cannot copy from meta to {}: tensors on the meta device have no data", to.name());
  return true;
}

std::shared_ptr<DeviceContext::State> DeviceContext::make_cpu(int threads,
                                                              std::shared_ptr<CachingAllocator> memory) {
  struct CpuState final : State {
    CpuState(int thread_count, std::shared_ptr<CachingAllocator> allocator)
        : State(Device::cpu(), std::move(allocator)),
          compute({.threads = thread_count, .memory = State::memory.get()}) {}
    Stream stream() override { return std::ref(compute); }
    void synchronize() override { compute.synchronize(); }
    std::vector<std::string> take_warnings() override { return compute.take_warnings(); }

    CpuStream compute;
  };
  return std::make_shared<CpuState>(threads, std::move(memory));
}

std::shared_ptr<DeviceContext::State> DeviceContext::make_meta() {
  struct MetaState final : State {
    MetaState()
        : State(Device::meta(), std::make_shared<CachingAllocator>(std::make_unique<NoMemory>(), 0)) {}
    Stream stream() override { return MetaStream{}; }
  };
  return std::make_shared<MetaState>();
}

/// The default contexts. `offered` is one that a program created; `own` was created by default_state().
struct DeviceContext::Defaults {
  std::weak_ptr<State> offered;
  std::shared_ptr<State> own;

  std::shared_ptr<State> get() const {
    const std::shared_ptr<State> created = offered.lock();
    return own ? own : created;
  }
  void offer(const std::shared_ptr<State>& state) {
    if (!get()) offered = state;
  }

  static Defaults& of_this_thread() {
    thread_local Defaults cpu;
    return cpu;
  }
  /// The defaults of the other devices, by kind and index. Never destroyed: the driver of a GPU may be gone
  /// when static variables are destroyed.
  struct Process {
    std::mutex mutex;
    std::map<std::pair<DeviceKind, int>, Defaults> of;
  };
  static Process& of_process() {
    static Process& process = *new Process;
    return process;
  }
};

std::shared_ptr<DeviceContext::State> DeviceContext::default_state(Device device) {
  if (device.kind == DeviceKind::cpu) {
    Defaults& defaults = Defaults::of_this_thread();
    if (std::shared_ptr<State> state = defaults.get()) return state;
    // Shared by all threads, and never destroyed: tensors in static variables may outlive it.
    static const auto& memory = *new std::shared_ptr<CachingAllocator>(host_allocator(0));
    return defaults.own = make_cpu(0, memory);
  }
  Defaults::Process& process = Defaults::of_process();
  const std::lock_guard lock(process.mutex);
  Defaults& defaults = process.of[{device.kind, device.index}];
  if (std::shared_ptr<State> state = defaults.get()) return state;
  return defaults.own = device.kind == DeviceKind::meta ? make_meta() : checked_cuda(device.index, {});
}

std::shared_ptr<DeviceContext::State> DeviceContext::checked_cuda(int index, const CudaOptions& options) {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) fail<DeviceError>("cuda:{}: {}", index, gpus.reason);
  if (index < 0 || index >= gpus.count)
    fail<DeviceError>(
        "cuda:{}: no such GPU; this process sees {}, cuda:0 to cuda:{} (see CUDA_VISIBLE_DEVICES)", index,
        gpus.count, gpus.count - 1);
  return make_cuda(index, options);
}

DeviceContext::DeviceContext(Device device) : state_(default_state(device)) {}

DeviceContext DeviceContext::create_cpu(const CpuOptions& options) {
  DeviceContext context(make_cpu(options.threads, host_allocator(options.memory_limit)));
  Defaults::of_this_thread().offer(context.state_);
  return context;
}

DeviceContext DeviceContext::create_cuda(int index, const CudaOptions& options) {
  DeviceContext context(checked_cuda(index, options));
  Defaults::Process& process = Defaults::of_process();
  const std::lock_guard lock(process.mutex);
  process.of[{DeviceKind::cuda, index}].offer(context.state_);
  return context;
}

DeviceContext DeviceContext::create(Device device, const CpuOptions& cpu, const CudaOptions& cuda) {
  if (device.kind == DeviceKind::cpu) return create_cpu(cpu);
  return device.kind == DeviceKind::cuda ? create_cuda(device.index, cuda) : DeviceContext(device);
}

Device DeviceContext::device() const { return state_->device; }
std::string DeviceContext::hardware() const { return state_->hardware(); }
std::string DeviceContext::uuid() const { return state_->uuid(); }
int DeviceContext::compute_capability() const { return state_->compute_capability(); }
Stream DeviceContext::stream() const { return state_->stream(); }
CachingAllocator& DeviceContext::memory() const { return *state_->memory; }
DeviceContext DeviceContext::host() const { return state_->host ? DeviceContext(state_->host) : *this; }
AlgorithmCache& DeviceContext::algorithm_cache() const { return state_->algorithms; }
void DeviceContext::set_autotune(bool enabled) const { state_->set_autotune(enabled); }

std::vector<std::string> DeviceContext::take_warnings() const { return state_->take_warnings(); }
void DeviceContext::synchronize() const { state_->synchronize(); }

std::uint64_t DeviceContext::enqueue_on_side_stream(std::function<void(const Stream&)> work) const {
  return state_->enqueue_on_side_stream(std::move(work));
}
void DeviceContext::wait_for_side_stream(std::uint64_t number) const { state_->wait_for_side_stream(number); }
void DeviceContext::wait_for_side_stream(const Stream& stream) const { state_->wait_for_side_stream(stream); }
void DeviceContext::join_side_stream() const { state_->join_side_stream(); }

Device Device::best(int local_rank) { return cuda_availability().count > 0 ? cuda(local_rank) : cpu(); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "auto") return best();
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    if (!digits.empty() && digits.size() <= 4 &&
        digits.find_first_not_of("0123456789") == std::string_view::npos)
      return cuda(std::stoi(std::string(digits)));
  }
  fail_option("Device::parse", "found '{}', expected auto, cpu, cuda or cuda:N", text);
}

std::string Device::name() const {
  if (kind == DeviceKind::cuda) return fmt::format("cuda:{}", index);
  return kind == DeviceKind::cpu ? "cpu" : "meta";
}

}  // namespace convoy
