#include "tests/cuda_emulator/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/cuda_emulator/sanitizer.h"

namespace convoy::emulator {
namespace {

BlockRunner* g_running = nullptr;  // for the functions that a kernel calls without any object

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::size_t number(const char* name, std::size_t otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

Settings from_environment() {
  Settings result;
  result.gpus = static_cast<int>(number("CONVOY_EMULATED_GPUS", 0));
  result.memory_bytes = number("CONVOY_EMULATED_MEMORY", result.memory_bytes);
  result.seed = number("CONVOY_EMULATOR_SEED", result.seed);
  const std::string order = variable("CONVOY_EMULATOR_ORDER");
  if (order == "descending") result.order = Order::descending;
  if (order == "random") result.order = Order::random;
  if (variable("CONVOY_EMULATOR_STREAMS") == "random") result.streams = Streams::random;
  return result;
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The last block that begins at or before an address, if the range lies in it.
template <class Map, class Size>
bool contains(const Map& blocks, const void* begin, std::size_t bytes, const Size& size) {
  auto next = blocks.upper_bound(begin);
  if (next == blocks.begin()) return false;
  const auto block = std::prev(next);
  const auto offset =
      static_cast<std::size_t>(static_cast<const char*>(begin) - static_cast<const char*>(block->first));
  return offset + bytes <= size(block->second);
}

}  // namespace

BlockRunner& current_block() { return *g_running; }

Driver& Driver::get() {
  // Never destroyed: a Device that outlives main still gives its memory back.
  static Driver& driver = *new Driver;
  return driver;
}

Driver::Driver() : settings(from_environment()), random_(settings.seed) {
  std::atexit([] { get().write_log(); });
}

/// CONVOY_EMULATOR_LOG=FOLDER: which kernels were launched, as "program offset" a line; nm gives the names.
void Driver::write_log() const {
  const std::string folder = variable("CONVOY_EMULATOR_LOG");
  if (folder.empty() || kernels_.empty()) return;
  std::ofstream log(folder + "/" + std::to_string(getpid()) + ".txt");
  const std::string program = std::filesystem::canonical("/proc/self/exe").string();
  for (const void* kernel : kernels_) {
    Dl_info module;
    if (dladdr(kernel, &module) == 0) continue;
    log << program << ' ' << static_cast<const char*>(kernel) - static_cast<const char*>(module.dli_fbase) << '\n';
  }
}

cudaStream_t Driver::add_stream(int device) {
  streams_.push_back(std::make_unique<EmulatedStream>());
  streams_.back()->device = device;
  return streams_.back().get();
}

void Driver::remove_stream(cudaStream_t stream) {
  run_until([&] { return stream->queue.empty(); });
  std::erase_if(streams_, [&](const auto& held) { return held.get() == stream; });
}

cudaEvent_t Driver::add_event() {
  auto event = std::make_shared<EmulatedEvent>();
  cudaEvent_t const handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

void Driver::remove_event(cudaEvent_t event) { events_.erase(event); }

std::shared_ptr<EmulatedEvent> Driver::find(cudaEvent_t event) {
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : found->second;
}

void Driver::push(cudaStream_t stream, EmulatedStream::Operation operation) {
  stream->queue.push_back(std::move(operation));
  if (settings.streams == Streams::eager) run_all();
}

void Driver::run_all() {
  run_until([] { return false; });
}

void Driver::run_until(const std::function<bool()>& done) {
  if (running_) return;  // a callback of ours
  running_ = true;
  open_memory();
  while (report.empty() && !done() && step()) {
  }
  close_memory();
  running_ = false;
}

/// One operation of a stream chosen at random among those that can go on; false where none can.
bool Driver::step() {
  std::vector<EmulatedStream*> ready;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    const EmulatedStream::Operation& next = stream->queue.front();
    if (next.kind != EmulatedStream::Operation::Kind::wait || next.event->reached >= next.ticket)
      ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  EmulatedStream& stream = *ready[random_() % ready.size()];
  const EmulatedStream::Operation next = std::move(stream.queue.front());
  stream.queue.pop_front();
  switch (next.kind) {
    case EmulatedStream::Operation::Kind::work: next.work(); break;
    case EmulatedStream::Operation::Kind::record:
      next.event->reached = std::max(next.event->reached, next.ticket);
      next.event->reached_ms = now_ms();
      break;
    case EmulatedStream::Operation::Kind::wait: break;
  }
  return true;
}

/// Device memory is readable only while the device works.
void Driver::open_memory() {
  for (const auto& [begin, block] : blocks_) unpoison(begin, block.bytes);
}
void Driver::close_memory() {
  for (const auto& [begin, block] : blocks_) poison(begin, block.bytes);
}

void* Driver::allocate(int device, std::size_t bytes) {
  if (bytes > settings.memory_bytes || used(device) > settings.memory_bytes - bytes) return nullptr;
  void* block = nullptr;
  constexpr std::size_t kAlignment = 256;  // as cudaMalloc gives
  if (posix_memalign(&block, kAlignment, std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
  std::memset(block, 0xff, bytes);  // NaN, where it is taken for a number
  blocks_[block] = {.bytes = bytes, .device = device};
  poison(block, bytes);
  return block;
}

bool Driver::release(void* block) {
  run_all();  // as cudaFree waits for the device
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  unpoison(block, found->second.bytes);
  blocks_.erase(found);
  std::free(block);
  return true;
}

void* Driver::allocate_pinned(std::size_t bytes) {
  void* block = nullptr;
  constexpr std::size_t kPage = 4096;
  if (posix_memalign(&block, kPage, std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
  pinned_[block] = bytes;
  return block;
}

bool Driver::release_pinned(void* block) {
  run_all();
  if (pinned_.erase(block) == 0) return false;
  std::free(block);
  return true;
}

bool Driver::is_on_device(const void* begin, std::size_t bytes) const {
  return contains(blocks_, begin, bytes, [](const Block& block) { return block.bytes; });
}

bool Driver::is_pinned(const void* begin, std::size_t bytes) const {
  return contains(pinned_, begin, bytes, [](std::size_t size) { return size; });
}

std::size_t Driver::used(int device) const {
  std::size_t sum = 0;
  for (const auto& [begin, block] : blocks_) sum += block.device == device ? block.bytes : 0;
  return sum;
}

void Driver::launch(cudaStream_t stream, Launch launch, const void* kernel) {
  launch.number = ++launches;
  kernels_.insert(kernel);
  contexts.insert(stream->device);
  push(stream, {.kind = EmulatedStream::Operation::Kind::work, .work = [this, launch = std::move(launch)] {
                  g_running = &runner_;
                  try {
                    runner_.run(launch, settings.order, random_);
                  } catch (const KernelFault& fault) {
                    fail(fault.what());
                  }
                  g_running = nullptr;
                }});
}

void Driver::fail(const std::string& what) {
  if (!report.empty()) return;
  report = what;
  std::fprintf(stderr, "CUDA emulator: %s\n", what.c_str());
}

Settings settings() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().settings;
}

void set(const Settings& settings) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  driver.run_all();
  driver.settings = settings;
  driver.random_.seed(settings.seed);
}

std::string report() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().report;
}

void reset() {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().report.clear();
  Driver::get().run_all();
  Driver::get().contexts.clear();
}

std::set<int> contexts() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().contexts;
}

std::uint64_t launches() {
  const std::lock_guard lock(Driver::get().lock());
  return Driver::get().launches;
}

}  // namespace convoy::emulator
