#include "emulator/runtime/driver.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "emulator/runtime/device_clock.h"
#include "emulator/runtime/environment.h"

namespace convoy::emulator {
namespace {

/// Returns the index of a variable's value among `choices`, or the first one if the variable is not set.
template <class E>
E choice(const char* name, std::initializer_list<const char*> choices) {
  const std::string text = variable(name);
  if (text.empty()) return E{0};
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end())
    throw std::invalid_argument(std::string(name) + ": found '" + text +
                                "', expected one of the values in emulator/README.md");
  return static_cast<E>(found - choices.begin());
}

/// Returns 90 for "9.0".
int capability_from_environment(int default_value) {
  const std::string text = variable("CONVOY_EMULATED_CAPABILITY");
  if (text.empty()) return default_value;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::size_t point = text.find('.');
  if (point + 2 != text.size() || point < 1 || point > 2 || !is_digit(text.back()) ||
      !std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(point), is_digit))
    throw std::invalid_argument("CONVOY_EMULATED_CAPABILITY: found '" + text + "', expected one like 9.0");
  return 10 * std::stoi(text) + (text.back() - '0');
}

Settings from_environment() {
  Settings result;
  result.gpus = number("CONVOY_EMULATED_GPUS", 0);
  result.driver_version = result.gpus > 0 ? CUDART_VERSION : 0;
  result.memory_bytes = number("CONVOY_EMULATED_MEMORY", result.memory_bytes);
  result.order = choice<Order>("CONVOY_EMULATOR_ORDER", {"ascending", "descending", "random"});
  result.streams = choice<Streams>("CONVOY_EMULATOR_STREAMS", {"eager", "random"});
  result.seed = number("CONVOY_EMULATOR_SEED", result.seed);
  result.capability = capability_from_environment(result.capability);
  result.multiprocessors = number("CONVOY_EMULATED_MULTIPROCESSORS", result.multiprocessors);
  result.nccl_connection_ms = number("CONVOY_EMULATED_NCCL_CONNECTION", result.nccl_connection_ms);
  return result;
}

}  // namespace

std::size_t shared_limit(int capability) {
  constexpr std::size_t kKiB =
      1024;  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
  if (capability == 80 || capability == 87) return 163 * kKiB;
  if (capability >= 90 && capability < 120) return 227 * kKiB;
  return 99 * kKiB;
}

KernelSettings& Driver::kernel_settings(const void* kernel, const std::string& name) {
  if (kernel != nullptr) return kernel_settings_[kernel];
  const std::string base = name.substr(0, name.find('<'));
  return named_settings_[base.substr(base.find_last_of(": ") + 1)];
}

Driver& Driver::get() {
  // Never destroyed: a Device that outlives main() still frees its memory.
  static Driver& driver = *new Driver;
  return driver;
}

Driver::Driver() : settings(from_environment()), random_(settings.seed) {
  if (AccessCounter::is_available && variable("CUEMU_CHECK") == "1") AccessChecker::enable();
  std::atexit([] { get().log_.write(); });
}

EmulatedStream* Driver::add_stream(int gpu) {
  streams_.push_back(std::make_unique<EmulatedStream>());
  streams_.back()->gpu = gpu;
  return streams_.back().get();
}

EmulatedStream* Driver::find(cudaStream_t stream) const {
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& held) {
    return held.get() == stream && !held->is_destroyed;
  });
  return found != streams_.end() ? found->get() : nullptr;
}

EmulatedStream* Driver::null_stream(int gpu) {
  EmulatedStream*& stream = null_streams_[gpu];
  if (stream == nullptr) {
    stream = add_stream(gpu);
    stream->is_blocking = true;
  }
  return stream;
}

void Driver::order_with_null_stream(EmulatedStream& stream) {
  const auto null = null_streams_.find(stream.gpu);
  if (!stream.is_blocking || stream.capture != nullptr || null == null_streams_.end()) return;
  const auto order = [](EmulatedStream& from, EmulatedStream& to) {
    if (AccessChecker* const checker = AccessChecker::current())
      checker->order.wait(&to, checker->order.record(&from));
    if (from.queue.empty()) return;
    const auto event = std::make_shared<EmulatedEvent>();
    from.queue.push_back(event->next_recording());
    to.queue.push_back([event] { return event->reached > 0; });
  };
  if (&stream != null->second) return order(*null->second, stream);
  for (const auto& other : streams_)
    if (other.get() != &stream && other->is_blocking && other->gpu == stream.gpu) order(*other, stream);
}

StreamOrder::Operation Driver::checked(EmulatedStream& stream, const std::string& what) {
  order_with_null_stream(stream);
  AccessChecker* const checker = AccessChecker::current();
  if (checker == nullptr || stream.capture != nullptr) return nullptr;
  return checker->order.queue(&stream, what, callers());
}

bool Driver::remove_stream(cudaStream_t stream) {
  if (find(stream) == nullptr) return false;
  Capture::abandon(*stream);
  stream->is_destroyed = true;
  return true;
}

EmulatedEvent* Driver::add_event(bool is_timed) {
  auto event = std::make_shared<EmulatedEvent>();
  event->is_timed = is_timed;
  EmulatedEvent* const handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

std::shared_ptr<EmulatedEvent> Driver::find(cudaEvent_t event) const {
  const auto found = events_.find(event);
  return found != events_.end() ? found->second : nullptr;
}

void Driver::record(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event, bool is_external) {
  order_with_null_stream(stream);
  if (AccessChecker* const checker = AccessChecker::current()) event->clock = checker->order.record(&stream);
  if (stream.capture != nullptr && is_external) {
    ++event_nodes;
    stream.capture->add(stream, {.work = {}, .event = event});
  } else if (stream.capture != nullptr) {
    event->capture = stream.capture;
    event->captured_after = stream.captured;
  } else {
    event->capture = nullptr;
    push(stream, event->next_recording());
  }
}

cudaError_t Driver::wait(EmulatedStream& stream, const std::shared_ptr<EmulatedEvent>& event) {
  if (event->capture != nullptr || stream.capture != nullptr) return Capture::wait(stream, *event);
  order_with_null_stream(stream);
  if (AccessChecker* const checker = AccessChecker::current()) checker->order.wait(&stream, event->clock);
  push(stream, [event, recording = event->recorded] { return event->reached >= recording; });
  return cudaSuccess;
}

void Driver::launch(EmulatedStream& stream, Launch launch, const void* kernel) {
  ++launches;
  log_.add(kernel, launch.block.x * launch.block.y * launch.block.z, launch.shared_bytes);
  const StreamOrder::Operation operation =
      checked(stream, launch.name.empty() ? "a kernel" : "kernel " + launch.name);
  push_work(stream, [this, gpu = stream.gpu, launch = std::move(launch), kernel, operation] {
    memory.open(gpu);
    try {
      AccessChecker* const checker = AccessChecker::current();
      std::optional<AccessCounter> counter;
      if (is_counting || checker != nullptr)
        counter.emplace(kernel, launch.grid, launch.block,
                        AccessCounter::Range{BlockRunner::shared_memory(), kMaxSharedBytes},
                        BlockRunner::slots(), memory.accessible(gpu));
      runner_.run(launch, settings.order, random_);
      if (const auto& mine = operation != nullptr ? operation : replayed_; mine != nullptr)
        checker->complete(mine, checker->accesses_of(*counter));
      if (counter) add_counts(launch, counter->take());
    } catch (const KernelFault& fault) {
      fail(fault.what());
    }
    memory.close(gpu);
    return true;
  });
}

/// Keeps the counts of a launch if they are wanted, and reports a load that nothing orders.
void Driver::add_counts(const Launch& launch, LaunchCounts counted) {
  counted.name = launch.name;
  counted.shared_bytes = runner_.used_shared_bytes();
  if (AccessChecker::current() != nullptr && counted.unordered_load != nullptr)
    Findings::get().add(
        {"CE104", place_of(counted.unordered_load),
         "a block reads what another block of the same launch writes; nothing orders the two"});
  if (is_counting) counts.push_back(std::move(counted));
}

void Driver::compute(EmulatedStream& stream, std::function<void()> work, LaunchCounts moved) {
  push_work(stream, [this, gpu = stream.gpu, work = std::move(work), moved = std::move(moved)] {
    memory.open(gpu);
    work();
    memory.close(gpu);
    if (AccessChecker* const checker = AccessChecker::current()) checker->compute();
    if (is_counting) counts.push_back(moved);
    return true;
  });
}

void Driver::transfer(EmulatedStream& stream, void* to, const void* from, int value, std::size_t bytes) {
  const bool is_from_gpu = from != nullptr && memory.is_on_gpu(from, bytes);
  const bool is_to_gpu = memory.is_on_gpu(to, bytes);
  const LaunchCounts moved{.operation = from == nullptr ? "fill"
                                        : !is_from_gpu  ? "copy to the GPU"
                                        : !is_to_gpu    ? "copy to the host"
                                                        : "copy",
                           .bytes_read = is_from_gpu ? bytes : 0,
                           .bytes_written = is_to_gpu ? bytes : 0};
  const StreamOrder::Operation operation = checked(stream, moved.operation);
  push_work(stream, [=, this] {
    memory.open(Memory::kEveryGpu);
    if (from != nullptr)
      std::memcpy(to, from, bytes);
    else
      std::memset(to, value, bytes);
    memory.close(Memory::kEveryGpu);
    if (AccessChecker* const checker = AccessChecker::current()) {
      const auto& mine = operation != nullptr ? operation : replayed_;
      AccessChecker::Accesses accesses = checker->copy(to, from, bytes, mine);
      if (mine != nullptr) checker->complete(mine, std::move(accesses));
    }
    if (is_counting) counts.push_back(moved);
    return true;
  });
}

void Driver::push(EmulatedStream& stream, EmulatedStream::Operation operation) {
  if (stream.capture != nullptr) return stream.capture->add(stream, {.work = std::move(operation)});
  stream.queue.push_back(std::move(operation));
  if (settings.streams == Streams::eager) run_all();
}

void Driver::push_work(EmulatedStream& stream, EmulatedStream::Operation work) {
  if (!settings.launch_ms || stream.capture != nullptr) return push(stream, std::move(work));
  // While the host enqueues the work, the GPU does what is queued. Then it waits.
  const double idle_ms = std::max(0.0, *settings.launch_ms - stream.queued_ms);
  simulate_device_ms(0, idle_ms);
  const double begin = device_ms();
  push(stream, std::move(work));
  stream.queued_ms += idle_ms - *settings.launch_ms + device_ms() - begin;
}

/// Runs the next operation of a random stream that can run. Returns false if no stream can.
bool Driver::step() {
  std::vector<EmulatedStream*> turns;
  for (const auto& stream : streams_)
    if (!stream->queue.empty()) turns.push_back(stream.get());
  std::shuffle(turns.begin(), turns.end(), random_);
  for (EmulatedStream* stream : turns) {
    if (!stream->queue.front()()) continue;
    stream->queue.pop_front();
    return true;
  }
  return false;
}

void Driver::run_until(const std::function<bool()>& done) {
  for (const auto& stream : streams_) stream->queued_ms = 0;  // the host waits for the GPU
  while (report_.empty() && !done()) {
    if (step()) continue;
    if (external_ == 0) break;
    lock_.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock_.lock();
  }
  free_if_idle();
}

void Driver::run_all() {
  while (report_.empty() && step()) {
  }
  free_if_idle();
}

void Driver::run_all_of(const EmulatedStream& stream) {
  run_until([&] { return stream.queue.empty(); });
  if (AccessChecker* const checker = AccessChecker::current()) checker->order.wait_on_host(&stream);
}

void Driver::run_all_streams() {
  run_until([&] {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const auto& held) { return held->queue.empty(); });
  });
  if (AccessChecker* const checker = AccessChecker::current()) checker->order.wait_for_all_on_host();
}

void Driver::waited_for(const EmulatedEvent& event) {
  if (AccessChecker* const checker = AccessChecker::current()) checker->order.wait_on_host(event.clock);
}

void Driver::free_if_idle() {
  std::erase_if(streams_, [](const auto& held) { return held->is_destroyed && held->queue.empty(); });
  if (std::all_of(streams_.begin(), streams_.end(), [](const auto& held) { return held->queue.empty(); }))
    memory.free_retired();
}

void Driver::fail(const std::string& what) {
  report_ = what;
  if (!settings.has_null_stream && AccessChecker::current() == nullptr) {
    std::fprintf(stderr, "CUDA emulator: %s\n", what.c_str());
    return;
  }
  const auto& known = Findings::get().all();
  if (std::any_of(known.begin(), known.end(),
                  [&](const Finding& each) { return what.ends_with(each.message); }))
    return;
  const std::size_t colon = what.find(": ");  // after the place
  const auto has = [&](const char* part) { return what.find(part) != std::string::npos; };
  const char* const code =
      has("must wait at a barrier of the cluster")                                             ? "CE107"
      : has("wgmma.mma_async reads") || has("may still read")                                  ? "CE101"
      : has("__syncthreads()") || has("barrier of") || has("mbarrier") || has("named barrier") ? "CE102"
                                                                                               : "CE103";
  Findings::get().add({code, what.substr(0, colon), what.substr(colon + 2)});
}

void Driver::change(const Settings& now) {
  run_all();
  settings = now;
  follow_host_clock(!now.launch_ms);
  random_.seed(now.seed);
}

void Driver::reset() {
  for (const auto& stream : streams_) {
    stream->queue.clear();
    stream->capture = nullptr;
  }
  for (const auto& [handle, event] : events_) {
    event->reached = event->recorded;
    event->capture = nullptr;
  }
  memory.free_retired();
  report_.clear();
  Findings::get().clear();
  contexts.clear();
}

Settings settings() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().settings;
}

void set(const Settings& settings) {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().change(settings);
}

std::string report() {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().run_all();
  const std::vector<Finding>& findings = Findings::get().all();
  if (!Driver::get().report().empty() || findings.empty()) return Driver::get().report();
  return to_string(findings.front());
}

void reset() {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().reset();
}

std::set<int> contexts() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().contexts;
}

bool can_count() { return AccessCounter::is_available; }

void start_counting() {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  driver.run_all();
  driver.counts.clear();
  driver.is_counting = true;
}

std::vector<LaunchCounts> stop_counting() {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  driver.run_all();
  driver.is_counting = false;
  return std::exchange(driver.counts, {});
}

std::uint64_t launches() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().launches;
}

std::uint64_t event_nodes() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().event_nodes;
}

std::uint64_t peer_copies() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().peer_copies;
}

}  // namespace convoy::emulator
